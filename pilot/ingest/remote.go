package ingest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// remote is the source of a remote cluster. Beside the services it reads the Secrets and ConfigMaps that proxies of
// that cluster want.
type remote struct {
	*crd.Source
	cluster string
	all     *remotes
}

// Run reads the cluster until ctx ends.
func (r *remote) Run(ctx context.Context) error {
	r.all.add(r)
	defer r.all.remove(r)
	return r.Source.Run(ctx)
}

// remotes are the sources of remote clusters that run, and what is wanted of each. Of one cluster there are two while
// its kubeconfig changes. Safe for concurrent use.
type remotes struct {
	mu      sync.Mutex
	running map[*remote]struct{}
	wanted  map[string][]kinds.Key // by cluster
}

// add notes a source that begins to run. Its first load holds what is wanted. So no wanted object is missing between
// the source before it and this one.
func (s *remotes) add(r *remote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lists.Put(&s.running, r, struct{}{})
	r.Want(s.wanted[r.cluster])
}

func (s *remotes) remove(r *remote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, r)
}

// want replaces what is wanted of each cluster.
func (s *remotes) want(byCluster map[string][]kinds.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.wanted
	s.wanted = byCluster
	for r := range s.running {
		if is := byCluster[r.cluster]; !slices.Equal(was[r.cluster], is) {
			r.Want(is)
		}
	}
}

// missing returns what is wanted of clusters and not there, in no order.
func (s *remotes) missing() (list []kinds.Key) {
	s.mu.Lock()
	running := maps.Clone(s.running)
	s.mu.Unlock()
	for r := range running {
		list = append(list, r.Missing()...)
	}
	return list
}
