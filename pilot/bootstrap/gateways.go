package bootstrap

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/injector/deployment"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Gateways are options of what is deployed for Gateways of the Gateway API.
type Gateways struct {
	NoDeployment bool   // deploy nothing
	NoClasses    bool   // create no GatewayClass
	DefaultClass string // the name of the GatewayClass that is created first; empty: istio
}

// gateways is what deploys Gateways.
type gateways struct {
	*deployment.Controller
	server *Server
	lease  *leader.Lease // required for writes; nil if leader election is disabled
	mesh   *mesh.Config  // of the last commit
}

// gatewaysLease is the right to deploy Gateways, of one revision. It is istiod's Lease too.
const gatewaysLease = "istio-gateway-deployment-"

// newGateways returns nil where the server is no pod of a cluster, or neither deploys Gateways nor creates classes.
func (s *Server) newGateways() (Component, error) {
	deploy := !s.o.Gateways.NoDeployment && s.injection != nil
	if !s.o.member() || !deploy && s.o.Gateways.NoClasses {
		return nil, nil
	}
	client, lease, err := s.elected(gatewaysLease + cmp.Or(s.o.Revision, "default"))
	if err != nil {
		return nil, err
	}
	o := deployment.Options{
		Client: client, Namespace: s.o.Namespace, Revision: s.o.Revision, Cluster: s.o.ClusterID,
		Deploy: deploy, Classes: deployment.Classes(cmp.Or(s.o.Gateways.DefaultClass, "istio")), CreateClasses: !s.o.Gateways.NoClasses,
		Objects: s.world.ObjectsOf, Object: s.world.Object,
		Version: func(ctx context.Context) (int, error) { return serverVersion(ctx, s.o.Client) },
		ConfigMaps: func(handler func([]kinds.Change)) (deployment.ConfigMaps, error) {
			return crd.New(crd.Options{
				Client: s.o.Client, Kinds: []*kinds.Kind{kinds.ConfigMap}, Handler: handler, Logger: s.o.Logger.With("scope", "kube"), Metrics: s.metrics, Limits: s.o.Limits,
				Only: map[*kinds.Kind]crd.Restriction{kinds.ConfigMap: {Namespace: s.o.Namespace, Labels: deployment.DefaultsLabel}},
			})
		},
		Logger: s.o.Logger.With("scope", "gateway"),
	}
	if deploy {
		o.Render = s.injection.injector.Render
	}
	s.gateways = &gateways{Controller: deployment.New(o), server: s, lease: lease}
	return s.gateways, nil
}

// serverVersion returns the version of an API server: 137 is 1.37.
func serverVersion(ctx context.Context, config *rest.Config) (int, error) {
	at, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return 0, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.JoinPath("version").String(), nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var info struct{ Major, Minor string }
	if err := json.NewDecoder(http.MaxBytesReader(nil, answer.Body, 1<<16)).Decode(&info); err != nil {
		return 0, fmt.Errorf("the version of the API server, answered with status %d: %w", answer.StatusCode, err)
	}
	major, err := strconv.Atoi(info.Major)
	if err != nil {
		return 0, fmt.Errorf("the version of the API server: %w", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	if err != nil {
		return 0, fmt.Errorf("the version of the API server: %w", err)
	}
	return 100*major + minor, nil
}

func (*gateways) Name() string { return "deployment of Gateways" }

// Run deploys Gateways while this server is elected, until ctx ends.
func (g *gateways) Run(ctx context.Context) error {
	whileElected(ctx, g.lease, g.Controller.Run)
	return nil
}

// Committed has the Gateways reconciled that a batch concerns.
func (g *gateways) Committed(batch []kinds.Change) {
	if m := g.server.world.Mesh(); m != g.mesh {
		g.mesh = m
		g.Refresh()
	}
	g.Notice(batch)
}
