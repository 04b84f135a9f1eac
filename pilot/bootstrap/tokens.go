package bootstrap

import (
	"bytes"
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
)

// issuers are the clusters whose tokens count: the server's own, and those that it reads. Safe for concurrent use.
type issuers struct {
	s   *Server
	own *authenticate.APIServer

	mu     sync.Mutex
	remote map[string]remoteIssuer // by ID of the cluster
}

// remoteIssuer is a remote cluster by the kubeconfig that is in use.
type remoteIssuer struct {
	kubeconfig []byte
	api        *authenticate.APIServer
}

// newIssuers returns the issuers of a server that has an API server.
func (s *Server) newIssuers() (*issuers, error) {
	own, err := authenticate.NewAPIServer(s.o.Client, s.podsOf(""), time.Now)
	if err != nil {
		return nil, fmt.Errorf("client of token reviews: %w", err)
	}
	return &issuers{s: s, own: own, remote: map[string]remoteIssuer{}}, nil
}

// find returns a cluster by the name that a caller gives.
func (i *issuers) find(name string) (string, authenticate.Cluster, error) {
	id := cmp.Or(i.s.o.ClusterAliases[name], name, i.s.o.ClusterID)
	if id == i.s.o.ClusterID {
		return id, i.own, nil
	}
	kubeconfig := i.s.from.Kubeconfig(id)
	i.mu.Lock()
	defer i.mu.Unlock()
	if kubeconfig == nil {
		delete(i.remote, id)
		if !i.s.from.HasSynced() {
			return "", nil, fmt.Errorf("%w: the remote clusters are not known yet", authenticate.ErrUnavailable)
		}
		return "", nil, fmt.Errorf("cluster %.200q is not known", name)
	}
	if had, ok := i.remote[id]; ok && bytes.Equal(had.kubeconfig, kubeconfig) {
		return id, had.api, nil
	}
	client, err := crd.Remote(kubeconfig, i.s.o.RemoteClient)
	if err == nil {
		var api *authenticate.APIServer
		if api, err = authenticate.NewAPIServer(client, i.s.podsOf(id), time.Now); err == nil {
			i.remote[id] = remoteIssuer{kubeconfig, api}
			return id, api, nil
		}
	}
	return "", nil, fmt.Errorf("%w: the kubeconfig of cluster %s is not usable", authenticate.ErrUnavailable, id) // why is a finding
}

// podsOf returns what is known of the pods of a cluster, by its name in keys.
func (s *Server) podsOf(cluster string) func(namespace, name string) (authenticate.Pod, bool) {
	return func(namespace, name string) (authenticate.Pod, bool) {
		if s.world.Snapshot() == nil || s.o.NoServices {
			return authenticate.Pod{}, false
		}
		o := s.world.Object(kinds.Key{Kind: kinds.Pod, Cluster: cluster, Namespace: namespace, Name: name})
		if o == nil {
			return authenticate.Pod{}, true
		}
		f := ingest.PodFacts(o)
		return authenticate.Pod{UID: o.UID, ServiceAccount: f.ServiceAccount, Node: f.NodeName}, o.UID != ""
	}
}
