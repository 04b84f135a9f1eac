package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/galley/controller"
	"github.com/istiod-lite/istiod-lite/pilot/components"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/exports"
	"github.com/istiod-lite/istiod-lite/pilot/external"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// remotes maintains the webhook configurations, root ConfigMaps and ServiceExports of the remote clusters that request
// it.
type remotes struct {
	s      *Server
	keeper *external.Keeper

	mu   sync.Mutex
	kept map[string]*remoteParts // by cluster ID
}

// remoteParts maintain one remote cluster. A part is nil if this server does not maintain it in its own cluster either.
type remoteParts struct {
	publisher      *trust.Publisher
	configurations *controllers.Manager
	exporter       *exports.Exporter
}

// managers returns the Managers of the parts that are not nil.
func (p *remoteParts) managers() (list []*controllers.Manager) {
	if p.publisher != nil {
		list = append(list, p.publisher.Manager)
	}
	if p.configurations != nil {
		list = append(list, p.configurations)
	}
	if p.exporter != nil {
		list = append(list, p.exporter.Manager)
	}
	return list
}

// newRemotes returns nil unless the server also maintains its own cluster.
func (s *Server) newRemotes() (components.Component, error) {
	if s.secure == nil || !s.o.member() {
		return nil, nil
	}
	r := &remotes{s: s, kept: map[string]*remoteParts{}}
	r.keeper = external.New(external.Options{
		Cluster: s.o.ClusterID, Namespace: s.o.Namespace, Serves: s.o.External, Kubeconfig: s.from.Kubeconfig, Keep: r.keep,
		Logger: s.o.Logger.With("scope", "kube"),
	})
	return r, nil
}

func (*remotes) Name() string { return "kept remote clusters" }

// Run maintains the remote clusters that request it until ctx ends.
func (r *remotes) Run(ctx context.Context) error { return r.keeper.Run(ctx) }

// keep maintains a cluster until ctx ends. If its parts cannot be made, it retries.
func (r *remotes) keep(ctx context.Context, cluster string, kubeconfig []byte) {
	logger := r.s.o.Logger.With("scope", "kube", "cluster", cluster)
	var parts *remoteParts
	controllers.Retry(ctx, logger, "failed to make the controllers of a remote cluster", func() (err error) {
		parts, err = r.make(cluster, kubeconfig)
		return err
	})
	if parts != nil {
		r.run(ctx, logger, cluster, parts)
	}
}

// run runs the parts of a cluster until ctx ends.
func (r *remotes) run(ctx context.Context, logger *slog.Logger, cluster string, parts *remoteParts) {
	r.mu.Lock()
	r.kept[cluster] = parts
	r.mu.Unlock()
	var all sync.WaitGroup
	for _, m := range parts.managers() {
		all.Add(1)
		safe.Go(logger, "remote cluster is kept", func() {
			defer all.Done()
			m.Run(ctx)
		})
	}
	all.Wait()
	r.mu.Lock()
	delete(r.kept, cluster)
	r.mu.Unlock()
	if parts.configurations != nil {
		for _, kind := range []*kinds.Kind{controller.Validating, controller.Mutating} {
			r.s.webhooks.held.Observed(cluster+"/"+kind.Name, nil)
		}
	}
}

// make makes the parts of a cluster. The server's replicas stand for election in that cluster together with all other
// control planes that maintain it. Errors never quote the kubeconfig.
func (r *remotes) make(cluster string, kubeconfig []byte) (*remoteParts, error) {
	s, parts := r.s, &remoteParts{}
	client, err := crd.Remote(kubeconfig, s.o.RemoteClient)
	if err != nil { // the source of the cluster reports it
		return nil, errors.New("the kubeconfig is not usable")
	}
	e := s.election(client, s.o.ClusterID+"/"+s.o.Instance())
	if s.secure.publisher != nil {
		lease, err := e.Lease(s.publishingLease(), "")
		if err != nil {
			return nil, err
		}
		if parts.publisher, err = s.newPublisher(s.secure, e, cluster, lease); err != nil {
			return nil, err
		}
	}
	if s.webhooks != nil && s.webhooks.Manager != nil {
		if parts.configurations, err = s.newConfigurations(e, cluster); err != nil {
			return nil, err
		}
	}
	if s.o.MultiCluster.AutoExport {
		if parts.exporter, err = s.newExporter(e, client, cluster); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// parts returns the parts of all clusters sorted by cluster ID, and the IDs.
func (r *remotes) parts() ([]*remoteParts, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Sorted(maps.Keys(r.kept))
	list := lists.Map(ids, func(id string) *remoteParts { return r.kept[id] })
	return list, ids
}

// RootsChanged reconciles the roots and the webhook configurations of all clusters.
func (r *remotes) RootsChanged() {
	list, _ := r.parts()
	for _, p := range list {
		for _, m := range p.managers() {
			m.NotifyAll()
		}
	}
}

// Committed reconciles the remote clusters after a change of their namespaces or of the mesh configuration.
func (r *remotes) Committed(batch []kinds.Change) {
	r.keeper.Notice(batch)
	list, _ := r.parts()
	for _, p := range list {
		if p.publisher != nil {
			p.publisher.Committed(batch)
		}
		if p.exporter != nil {
			p.exporter.Committed(batch)
		}
	}
}

// Findings returns the findings about maintained clusters, and about clusters that request it without effect.
func (r *remotes) Findings() []diag.Diagnostic {
	list := r.keeper.Findings()
	parts, ids := r.parts()
	for i, p := range parts {
		for _, m := range p.managers() {
			for _, d := range m.Findings() {
				if d.Object != "" {
					d.Object += " of cluster " + ids[i]
				} else {
					d.Message += ", in cluster " + ids[i]
				}
				list = append(list, d)
			}
		}
	}
	return list
}
