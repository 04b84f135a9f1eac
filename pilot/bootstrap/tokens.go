package bootstrap

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// issuers are the clusters whose tokens count: the server's own, and those that it reads. Safe for concurrent use.
type issuers struct {
	s   *Server
	own *authenticate.APIServer

	remote *perCluster[*authenticate.APIServer]
}

// newIssuers returns the issuers of a server that has an API server.
func (s *Server) newIssuers() (*issuers, error) {
	own, err := authenticate.NewAPIServer(s.o.Client, s.podsOf(""), time.Now)
	if err != nil {
		return nil, fmt.Errorf("client of token reviews: %w", err)
	}
	remote := &perCluster[*authenticate.APIServer]{kubeconfig: s.from.Kubeconfig, client: s.o.RemoteClient, make: func(cluster string, client *rest.Config) (*authenticate.APIServer, error) {
		return authenticate.NewAPIServer(client, s.podsOf(cluster), time.Now)
	}}
	return &issuers{s: s, own: own, remote: remote}, nil
}

// find returns a cluster by the name that a caller gives.
func (i *issuers) find(name string) (string, authenticate.Cluster, error) {
	id := cmp.Or(i.s.o.ClusterAliases[name], name, i.s.o.ClusterID)
	if id == i.s.o.ClusterID {
		return id, i.own, nil
	}
	api, known, err := i.remote.get(id)
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", authenticate.ErrUnavailable, err)
	case known:
		return id, api, nil
	case !i.s.from.HasSynced():
		return "", nil, fmt.Errorf("%w: the remote clusters are not known yet", authenticate.ErrUnavailable)
	}
	return "", nil, fmt.Errorf("cluster %.200q is not known", name)
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
		f := kube.FactsOfPod(o)
		return authenticate.Pod{UID: o.UID, ServiceAccount: f.ServiceAccount, Node: f.NodeName}, o.UID != ""
	}
}
