package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// PerServer holds one value for the API server of each cluster: the server's own, and each remote cluster that a Secret
// names. The value of a remote cluster is made on demand, and again when its kubeconfig has changed. Get drops the
// values of clusters that no Secret names any more. It is safe for concurrent use.
type PerServer[T any] struct {
	own     T
	cluster string // ID of the server's own cluster
	remote  kubeconfigs
	client  crd.ClientOptions
	make    func(*rest.Config) (T, error)

	mu   sync.Mutex
	made map[string]ofServer[T] // by cluster ID
}

// kubeconfigs provides the kubeconfigs of remote clusters; see Sources.
type kubeconfigs interface {
	Kubeconfig(cluster string) []byte
	HasSynced() bool
}

type ofServer[T any] struct {
	kubeconfig []byte
	value      T
}

// NewPerServer makes the value of the server's own cluster.
func NewPerServer[T any](s *Sources, make func(*rest.Config) (T, error)) (*PerServer[T], error) {
	own, err := make(s.o.Client)
	return &PerServer[T]{
		own: own, cluster: s.o.ClusterID, remote: s, client: s.o.RemoteClient, make: make, made: map[string]ofServer[T]{},
	}, err
}

// Get returns the value for a cluster ID, and reports whether the cluster is known. It fails if the clusters have not
// been read yet, or if the cluster's kubeconfig is unusable, which is also a finding.
func (p *PerServer[T]) Get(cluster string) (v T, known bool, err error) {
	if cluster == p.cluster {
		return p.own, true, nil
	}
	kubeconfig := p.remote.Kubeconfig(cluster)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.made, func(cluster string, _ ofServer[T]) bool { return p.remote.Kubeconfig(cluster) == nil })
	switch {
	case kubeconfig == nil && !p.remote.HasSynced():
		return v, false, errors.New("the remote clusters are not known yet")
	case kubeconfig == nil:
		return v, false, nil
	}
	if had, ok := p.made[cluster]; ok && bytes.Equal(had.kubeconfig, kubeconfig) {
		return had.value, true, nil
	}
	client, err := crd.Remote(kubeconfig, p.client)
	if err == nil {
		v, err = p.make(client)
	}
	if err != nil {
		return v, true, fmt.Errorf("the kubeconfig of cluster %s is not usable", cluster)
	}
	p.made[cluster] = ofServer[T]{kubeconfig, v}
	return v, true, nil
}
