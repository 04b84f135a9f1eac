package exports

import (
	"log/slog"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// Options configure an Exporter.
type Options struct {
	Client  *rest.Config  // API server of the cluster
	Lease   *leader.Lease // nil if this replica always leads
	Cluster string        // ID of a remote cluster; empty for the server's own
	Domain  string        // DNS domain of the cluster's services
	Version string        // version of ServiceExports to write; empty for v1alpha1
	World   World
	// Namespaces are the namespaces in which ServiceExports are watched. Empty for all.
	Namespaces []string
	Logger     *slog.Logger
}

// World has the accepted Services of all clusters.
type World interface {
	Object(kinds.Key) *kinds.Object
	ObjectsOf(*kinds.Kind) []*kinds.Object
	// Mesh returns the mesh configuration, or nil if it is not known yet.
	Mesh() *mesh.Config
}

// codeUnread is the code of the finding that the ServiceExports cannot be read.
const codeUnread = "ServiceExportsNotRead"

// Exporter creates ServiceExports in a cluster, while this replica is elected.
type Exporter struct {
	*controllers.Manager
	cluster    string
	world      World
	mesh       *mesh.Config // mesh configuration of the last commit
	controller *controllers.Controller
}

// New returns an Exporter. It does not run it.
func New(o Options) (*Exporter, error) {
	e := &Exporter{cluster: o.Cluster, world: o.World}
	e.controller = controllers.New("ServiceExport", codeUnread, &reconciler{o: o}, o.Logger)
	var err error
	e.Manager, err = controllers.NewManager(
		controllers.Options{Client: o.Client, Lease: o.Lease, Namespaces: o.Namespaces, Logger: o.Logger}, e.controller,
	)
	return e, err
}

// Committed reconciles the Services of a commit, or all of them after a change of the mesh configuration, or of a
// namespace, which may take part now.
func (e *Exporter) Committed(batch []kinds.Change) {
	m := e.world.Mesh()
	all := m != e.mesh
	e.mesh = m
	for _, c := range batch {
		switch {
		case c.Cluster != e.cluster:
		case c.Kind == kinds.Namespace:
			all = true
		case c.Kind == kinds.Service && c.Object != nil:
			e.controller.Notify(request(c.Namespace, c.Name))
		}
	}
	if all {
		e.NotifyAll()
	}
}
