package ingest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/watchfile"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/config/multicluster"
)

// addRemotes adds the remote clusters that files name, or else Secrets.
func (s *Sources) addRemotes() error {
	logger := s.o.Logger.With("scope", "kube")
	s.remote = multicluster.New(multicluster.Options{
		Cluster: s.o.ClusterID, Namespace: s.o.Namespace, Handler: s.add("remote clusters"), Timeout: s.o.RemoteTimeout,
		Logger: logger, Metrics: s.metrics,
		Connect: func(cluster string, kubeconfig []byte, h config.Handler) (config.Source, error) {
			client, err := crd.Remote(kubeconfig, s.o.RemoteClient)
			if err != nil {
				return nil, err
			}
			source, err := crd.New(crd.Options{
				Client: client, Cluster: cluster, Kinds: s.o.unignored(s.o.remoteKinds()), Namespaces: s.o.Namespaces(), Handler: h,
				Logger: logger.With("cluster", cluster), Metrics: s.metrics, Limits: s.o.Limits,
			})
			if err != nil {
				return nil, err
			}
			return &remote{source, cluster, &s.remotes}, nil
		},
	})
	s.list = append(s.list, Runner{"remote clusters", s.remote})
	if s.o.Kubeconfigs != "" {
		s.list = append(s.list, Runner{"kubeconfigs of remote clusters", multicluster.NewFiles(multicluster.FilesOptions{
			Dir: s.o.Kubeconfigs, Limit: s.o.Limits.MeshConfig, Controller: s.remote, Logger: logger,
			Watch: watchfile.Options{Poll: s.o.Poll, NoWatch: s.o.NoWatch, Logger: logger},
		})})
		return nil
	}
	secrets := crd.Options{
		Kinds: []*kinds.Kind{kinds.Secret}, Handler: s.remote.Handle,
		Only: map[*kinds.Kind]crd.Restriction{
			kinds.Secret: {Namespace: s.o.Namespace, Labels: multicluster.Label + "=" + multicluster.LabelValue},
		},
	}
	if s.o.SecretsClient == nil {
		_, err := s.cluster("remote cluster secrets", secrets)
		return err
	}
	secrets.Client, secrets.Logger, secrets.Metrics, secrets.Limits = s.o.SecretsClient, logger, s.metrics, s.o.Limits
	k, err := crd.New(secrets)
	s.list = append(s.list, Runner{"remote cluster secrets", k})
	return err
}

// remote is the source of a remote cluster. Besides services it reads the Secrets and ConfigMaps that the proxies of
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

// remotes are the running sources of remote clusters, and the objects wanted from each. A cluster has two sources while
// its kubeconfig changes. It is safe for concurrent use.
type remotes struct {
	mu      sync.Mutex
	running map[*remote]struct{}
	wanted  map[string][]kinds.Key // by cluster
}

// add adds a source that begins to run. Its first load includes the wanted objects, so that none is missing when it
// replaces another source.
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

// want replaces the objects that are wanted from each cluster.
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

// missing returns the wanted objects that their clusters do not have, in no order.
func (s *remotes) missing() (list []kinds.Key) {
	s.mu.Lock()
	running := maps.Clone(s.running)
	s.mu.Unlock()
	for r := range running {
		list = append(list, r.Missing()...)
	}
	return list
}
