package trust

import (
	"log/slog"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Options configure a Publisher.
type Options struct {
	Client  *rest.Config  // API server of the cluster
	Lease   *leader.Lease // nil if this replica always leads
	Cluster string        // ID of a remote cluster; empty for the server's own
	World   World
	// Namespaces are the namespaces in which ConfigMaps are watched. Empty for all.
	Namespaces []string
	Maps       []Map
	Bundle     string // name of a ClusterTrustBundle with the text of the first of Maps; empty for none
	Logger     *slog.Logger
}

// World has the namespaces of clusters.
type World interface {
	// Namespaces returns the names of a cluster's namespaces that take part in the mesh.
	Namespaces(cluster string) []string
	// TakesPart reports whether a namespace is one of them.
	TakesPart(cluster, namespace string) bool
	// Mesh returns the mesh configuration, which selects the namespaces.
	Mesh() *mesh.Config
}

// Map is a ConfigMap that is published in each namespace.
type Map struct {
	Name string
	Key  string        // key in its data
	Text func() []byte // value of Key; empty for no ConfigMap
	// Existing publishes it only where the ConfigMap exists.
	Existing bool
}

// Label marks each published ConfigMap.
const (
	Label      = names.LabelConfig
	LabelValue = "true"
)

// codeUnread is the code of the finding that the ConfigMaps cannot be read.
const codeUnread = "RootsNotRead"

// Publisher publishes ConfigMaps in the namespaces of a cluster, while this replica is elected.
type Publisher struct {
	*controllers.Manager
	cluster     string
	world       World
	mesh        *mesh.Config // mesh configuration of the last commit
	reconcilers []*reconciler
	controllers []*controllers.Controller
}

// New returns a Publisher. It does not run it.
func New(o Options) (*Publisher, error) {
	p := &Publisher{cluster: o.Cluster, world: o.World}
	for _, m := range o.Maps {
		r := &reconciler{Map: m, cluster: o.Cluster, world: o.World, logger: o.Logger}
		p.reconcilers = append(p.reconcilers, r)
		p.controllers = append(p.controllers, controllers.New("ConfigMap", codeUnread, r, o.Logger))
	}
	list := p.controllers
	if o.Bundle != "" {
		r := &bundleReconciler{Map: Map{Name: o.Bundle, Text: o.Maps[0].Text}}
		list = append(slices.Clone(list), controllers.New("ClusterTrustBundle", codeUnread, r, o.Logger))
	}
	var err error
	p.Manager, err = controllers.NewManager(
		controllers.Options{Client: o.Client, Lease: o.Lease, Namespaces: o.Namespaces, Logger: o.Logger}, list...,
	)
	return p, err
}

// Committed reconciles the namespaces of a commit, or all of them after a change of the mesh configuration.
func (p *Publisher) Committed(batch []kinds.Change) {
	if m := p.world.Mesh(); m != p.mesh {
		p.mesh = m
		p.NotifyAll()
	}
	for _, c := range batch {
		if c.Kind == kinds.Namespace && c.Cluster == p.cluster {
			for i, r := range p.reconcilers {
				p.controllers[i].Notify(r.request(c.Name))
			}
		}
	}
}
