package bootstrap

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/galley/controller"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/external"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// remotes keeps the webhook configurations and the ConfigMaps with the roots of the remote clusters that ask for it.
type remotes struct {
	s      *Server
	keeper *external.Keeper

	mu   sync.Mutex
	kept map[string]*remoteParts // by the cluster's ID
}

// remoteParts keep one remote cluster.
type remoteParts struct {
	publisher  *trust.Publisher       // nil: this server hands out no roots
	controller *controller.Controller // nil: it keeps no webhook configurations
}

// newRemotes returns nil where the server keeps its own cluster neither.
func (s *Server) newRemotes() (Component, error) {
	if s.secure == nil || !s.o.member() {
		return nil, nil
	}
	r := &remotes{s: s, kept: map[string]*remoteParts{}}
	r.keeper = external.New(external.Options{
		Cluster: s.o.ClusterID, Namespace: s.o.Namespace, Serves: s.o.External, Kubeconfig: s.from.Kubeconfig, Keep: r.keep, Logger: s.o.Logger.With("scope", "kube"),
	})
	return r, nil
}

func (*remotes) Name() string { return "kept remote clusters" }

// Run keeps the remote clusters that ask for it until ctx ends.
func (r *remotes) Run(ctx context.Context) error { return r.keeper.Run(ctx) }

// keep keeps a cluster until ctx ends.
func (r *remotes) keep(ctx context.Context, cluster string, kubeconfig []byte) {
	logger := r.s.o.Logger.With("scope", "kube", "cluster", cluster)
	client, err := crd.Remote(kubeconfig, r.s.o.RemoteClient)
	if err != nil { // its text may quote the kubeconfig; the source of the cluster has a finding
		logger.Error("remote cluster cannot be kept: its kubeconfig is not usable")
		<-ctx.Done()
		return
	}
	parts, run, err := r.make(cluster, client)
	if err != nil {
		logger.Error("remote cluster cannot be kept", "err", err)
		<-ctx.Done()
		return
	}
	r.mu.Lock()
	r.kept[cluster] = parts
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.kept, cluster)
		r.mu.Unlock()
		if parts.controller != nil {
			r.s.webhooks.callers.observed(cluster, nil)
		}
	}()
	var all sync.WaitGroup
	for _, f := range run {
		all.Add(1)
		safe.Go(logger, "remote cluster is kept", func() {
			defer all.Done()
			f(ctx)
		})
	}
	all.Wait()
}

// make returns what keeps a cluster, and the functions that do until their context ends. The server's replicas stand
// for election in that cluster, with all other control planes that keep it.
func (r *remotes) make(cluster string, client *rest.Config) (*remoteParts, []func(context.Context), error) {
	s, parts, run := r.s, &remoteParts{}, []func(context.Context){}
	lease := func(name, revision string) (*leader.Lease, error) {
		if s.o.NoElection {
			return nil, nil
		}
		return s.newLease(client, name, revision, s.o.ClusterID+"/"+s.o.Instance())
	}
	if s.secure.publisher != nil {
		l, err := lease(rootsLease, "")
		if err != nil {
			return nil, nil, err
		}
		if parts.publisher, err = s.newPublisher(s.secure, client, cluster, l); err != nil {
			return nil, nil, err
		}
		if l == nil {
			run = append(run, parts.publisher.Run)
		} else {
			run = append(run, func(ctx context.Context) { l.Run(ctx, parts.publisher.Run) })
		}
	}
	if s.webhooks != nil && s.webhooks.controller != nil {
		l, err := lease(webhooksLease, s.o.Revision)
		if err != nil {
			return nil, nil, err
		}
		if parts.controller, err = s.newController(s.webhooks, client, cluster, l); err != nil {
			return nil, nil, err
		}
		run = append(run, func(ctx context.Context) { _ = s.leadWebhooks(ctx, parts.controller, l) })
	}
	return parts, run, nil
}

// parts returns what keeps the clusters, in the order of their IDs, and those IDs.
func (r *remotes) parts() ([]*remoteParts, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Sorted(maps.Keys(r.kept))
	list := make([]*remoteParts, 0, len(ids))
	for _, id := range ids {
		list = append(list, r.kept[id])
	}
	return list, ids
}

// RootsChanged has the roots written, and the webhook configurations reconciled.
func (r *remotes) RootsChanged() {
	list, _ := r.parts()
	for _, p := range list {
		if p.publisher != nil {
			p.publisher.Wake()
		}
		if p.controller != nil {
			p.controller.Wake()
		}
	}
}

// Committed takes the changes of a commit: namespaces of remote clusters, and the mesh configuration, which selects
// namespaces.
func (r *remotes) Committed(batch []kinds.Change) {
	r.keeper.Notice(batch)
	if slices.ContainsFunc(batch, func(c kinds.Change) bool {
		return c.Kind == kinds.Namespace && c.Cluster != "" || c.Kind == kinds.ConfigMap
	}) {
		list, _ := r.parts()
		for _, p := range list {
			if p.publisher != nil {
				p.publisher.Wake()
			}
		}
	}
}

// Findings returns what is wrong in the clusters that are kept, and which clusters ask to be kept and are not.
func (r *remotes) Findings() []diag.Diagnostic {
	list := r.keeper.Findings()
	parts, ids := r.parts()
	for i, p := range parts {
		var found []diag.Diagnostic
		if p.publisher != nil {
			found = append(found, p.publisher.Findings()...)
		}
		if p.controller != nil {
			found = append(found, p.controller.Findings()...)
		}
		for _, d := range found {
			if d.Object != "" {
				d.Object += " of cluster " + ids[i]
			} else {
				d.Message += ", in cluster " + ids[i]
			}
			list = append(list, d)
		}
	}
	return list
}
