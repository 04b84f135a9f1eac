package bootstrap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// NodeAccount is a service account whose pods serve all pods of their node.
type NodeAccount struct{ Namespace, Name string }

// impersonate returns an error unless a caller may have certificates of another identity: the caller is a pod of a
// trusted account, proved so by its token, and a pod of that identity runs on its node. While pods are not read, or
// what was read may be old, nobody may, and the caller is to ask again.
func (s *Server) impersonate(caller identity.Peer, id identity.ID) error {
	b := caller.Bound
	switch {
	case !slices.Contains(s.o.Certificates.NodeAccounts, NodeAccount{caller.ID.Namespace, caller.ID.ServiceAccount}):
		return errors.New("its account is not one of CA_TRUSTED_NODE_ACCOUNTS")
	case b.Pod == "":
		return errors.New("it did not show the token of a pod")
	case id.TrustDomain != s.trustDomain():
		return errors.New("the identity is of another trust domain")
	case s.o.NoServices || !s.from.Current(b.Cluster, kinds.Pod):
		return fmt.Errorf("%w: the pods of cluster %s are not known", authenticate.ErrUnavailable, b.Cluster)
	}
	cluster := b.Cluster
	if cluster == s.o.ClusterID {
		cluster = "" // in keys
	}
	pod, known := s.podsOf(cluster)(caller.ID.Namespace, b.Pod)
	switch {
	case !known || pod == authenticate.Pod{} || pod.Node == "":
		return fmt.Errorf("%w: pod %s is not known yet", authenticate.ErrUnavailable, b.Pod)
	case pod.UID != b.PodUID || pod.ServiceAccount != caller.ID.ServiceAccount:
		return errors.New("its pod is gone")
	case !s.world.RunsOn(cluster, pod.Node, id.Namespace, id.ServiceAccount):
		return fmt.Errorf("no pod of that identity runs on node %s", pod.Node)
	}
	return nil
}
