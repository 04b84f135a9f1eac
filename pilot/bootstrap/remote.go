package bootstrap

import (
	"bytes"
	"fmt"
	"maps"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// perCluster holds what is made of each remote cluster's API server when it is first asked for, and made anew when its
// kubeconfig has changed. A cluster that no Secret names any more is forgotten at the next call. Safe for concurrent
// use.
type perCluster[T any] struct {
	kubeconfig func(cluster string) []byte // nil: no Secret names the cluster
	client     crd.ClientOptions
	make       func(cluster string, client *rest.Config) (T, error)

	mu   sync.Mutex
	made map[string]ofCluster[T] // by the cluster's ID
}

type ofCluster[T any] struct {
	kubeconfig []byte
	value      T
}

// get returns what is made of a cluster, and reports whether a Secret names the cluster. The error is that its
// kubeconfig is not usable; why is a finding.
func (p *perCluster[T]) get(cluster string) (v T, known bool, err error) {
	kubeconfig := p.kubeconfig(cluster)
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.made, func(cluster string, _ ofCluster[T]) bool { return p.kubeconfig(cluster) == nil })
	if kubeconfig == nil {
		return v, false, nil
	}
	if had, ok := p.made[cluster]; ok && bytes.Equal(had.kubeconfig, kubeconfig) {
		return had.value, true, nil
	}
	client, err := crd.Remote(kubeconfig, p.client)
	if err == nil {
		v, err = p.make(cluster, client)
	}
	if err != nil {
		return v, true, fmt.Errorf("the kubeconfig of cluster %s is not usable", cluster)
	}
	if p.made == nil {
		p.made = map[string]ofCluster[T]{}
	}
	p.made[cluster] = ofCluster[T]{kubeconfig, v}
	return v, true, nil
}
