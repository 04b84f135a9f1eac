package bootstrap

import (
	"cmp"
	"context"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/injector/deployment"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Gateways configure the deployment of Gateways of the Gateway API.
type Gateways struct {
	NoDeployment bool // deploy nothing
	NoClasses    bool // create no GatewayClass
}

// gateways is the Component that deploys Gateways and creates their classes.
type gateways struct {
	server     *Server
	lease      *leader.Lease // required for writes; nil if leader election is disabled
	reconciler *deployment.Reconciler
	gateways   *controllers.Controller
	deploys    *controllers.Manager // of gateways, from the first Gateway on; nil if this server deploys none
	classes    *controllers.Manager
	mesh       *mesh.Config // mesh configuration of the last commit
}

// codeGatewaysUnread is the code of the finding that the objects of Gateways cannot be read.
const codeGatewaysUnread = "GatewayObjectsNotRead"

// newGateways returns nil unless the server is a pod of a cluster and deploys Gateways or creates classes.
func (s *Server) newGateways() (components.Component, error) {
	deploy := !s.o.Gateways.NoDeployment && s.injection != nil
	if !s.o.member() || !deploy && s.o.Gateways.NoClasses {
		return nil, nil
	}
	lease, err := s.election(s.o.Client, s.o.Instance()).Lease(names.GatewaysLease(s.o.Revision), "")
	if err != nil {
		return nil, err
	}
	guarded, logger := rest.CopyConfig(s.o.Client), s.o.Logger.With("scope", "gateway")
	guarded.Wrap(lease.Guard)
	g := &gateways{server: s, lease: lease}
	controller := cmp.Or(s.o.GatewayController, deployment.ControllerName)
	all := deployment.Classes(cmp.Or(s.o.GatewayClass, "istio"), controller)
	created := all
	if s.o.Gateways.NoClasses {
		created = nil
	}
	classes := controllers.New("GatewayClass", codeGatewaysUnread, deployment.NewClasses(s.world, controller, created, logger), logger)
	if g.classes, err = controllers.NewManager(controllers.Options{Client: guarded, Logger: logger}, classes); err != nil || !deploy {
		return g, err
	}
	o := deployment.Options{
		Namespace: s.o.Namespace, Revision: s.o.Revision, Cluster: s.o.ClusterID, Classes: all, Controller: controller,
		World: s.world, Templates: s.injection.Injector, Maps: g, Logger: logger,
	}
	if o.APIServer, err = apiserver.New(s.o.Client); err != nil {
		return nil, err
	}
	g.reconciler = deployment.New(o)
	g.gateways = controllers.New("Gateway", codeGatewaysUnread, g.reconciler, logger)
	g.deploys, err = controllers.NewManager(
		controllers.Options{Client: guarded, OnDemand: true, Namespaces: s.o.Namespaces(), Logger: logger}, g.gateways,
	)
	s.gateways = g
	return g, err
}

// ConfigMaps returns a source of the ConfigMaps with parameters.
func (g *gateways) ConfigMaps(handler func([]kinds.Change)) (deployment.ConfigMaps, error) {
	o := g.server.o
	return crd.New(crd.Options{
		Client: o.Client, Kinds: []*kinds.Kind{kinds.ConfigMap}, Logger: o.Logger.With("scope", "kube"), Metrics: g.server.metrics,
		Limits: o.Limits,
		Only:   map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: o.Namespace, Labels: deployment.DefaultsLabel}},
		Handler: func(changes []kinds.Change) {
			handler(changes)
			g.gateways.NotifyAll()
		},
	})
}

func (*gateways) Name() string { return "deployment of Gateways" }

// Run deploys Gateways and creates classes while this server is elected, until ctx ends.
func (g *gateways) Run(ctx context.Context) error {
	g.lease.Run(ctx, g.term)
	return nil
}

// term runs the Managers until ctx ends.
func (g *gateways) term(ctx context.Context) {
	if g.deploys == nil {
		g.classes.Run(ctx)
		return
	}
	safe.Beside(ctx, g.server.o.Logger, "classes of Gateways", g.classes.Run, g.deploys.Run)
}

// Committed reconciles the Gateways and classes that a commit affects.
func (g *gateways) Committed(batch []kinds.Change) {
	list, all := deployment.Affected(batch)
	if m := g.server.world.Mesh(); m != g.mesh {
		g.mesh, all = m, true
	}
	if all {
		g.classes.NotifyAll()
	}
	if g.deploys == nil || !all && len(list) == 0 {
		return
	}
	if !g.deploys.Needed() && g.reconciler.Needed() {
		g.deploys.Need()
	}
	if g.gateways.Notify(list...); all {
		g.gateways.NotifyAll()
	}
}

// Findings returns the findings about objects that cannot be read or written.
func (g *gateways) Findings() []diag.Diagnostic {
	list := append(g.lease.Findings(), g.classes.Findings()...)
	if g.deploys != nil {
		list = append(append(list, g.reconciler.Findings()...), g.deploys.Findings()...)
	}
	return list
}
