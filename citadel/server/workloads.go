package server

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// NodeAccount is a service account whose pods request certificates for all pods of their node:
// CA_TRUSTED_NODE_ACCOUNTS.
type NodeAccount struct{ Namespace, Name string }

// Workloads knows the pods and accounts of the mesh's clusters. Clusters are named by their IDs.
type Workloads interface {
	authenticate.Pods
	// CurrentPods reports whether the pods of a cluster are known and not stale.
	CurrentPods(cluster string) bool
	// RunsOn reports whether a pod of a service account runs on a node.
	RunsOn(cluster, node, namespace, account string) bool
	// HasAccount reports whether a workload may run as a service account in any cluster. The error names the objects
	// that are unknown or stale.
	HasAccount(namespace, account string) (bool, error)
}

// impersonate returns an error unless a caller may request certificates of another identity: a token proves that the
// caller is a pod of a trusted account, and a pod of that identity runs on its node. If the pods are unknown or stale,
// it returns ErrUnavailable and the caller should try again.
func (s *Server) impersonate(caller identity.Peer, id identity.ID) error {
	b := caller.Bound
	switch {
	case !slices.Contains(s.o.NodeAccounts, NodeAccount{caller.ID.Namespace, caller.ID.ServiceAccount}):
		return errors.New("its account is not one of CA_TRUSTED_NODE_ACCOUNTS")
	case b.Pod == "":
		return errors.New("it did not show the token of a pod")
	case id.TrustDomain != s.o.TrustDomains.TrustDomain():
		return errors.New("the identity is of another trust domain")
	case !s.o.Workloads.CurrentPods(b.Cluster):
		return fmt.Errorf("%w: the pods of cluster %s are not known", authenticate.ErrUnavailable, b.Cluster)
	}
	pod, known := s.o.Workloads.Pod(b.Cluster, caller.ID.Namespace, b.Pod)
	switch {
	case !known || pod == identity.Pod{} || pod.Node == "":
		return fmt.Errorf("%w: pod %s is not known yet", authenticate.ErrUnavailable, b.Pod)
	case pod.UID != b.PodUID || pod.ServiceAccount != caller.ID.ServiceAccount:
		return errors.New("its pod is gone")
	case !s.o.Workloads.RunsOn(b.Cluster, pod.Node, id.Namespace, id.ServiceAccount):
		return fmt.Errorf("no pod of that identity runs on node %s", pod.Node)
	}
	return nil
}

// renewable returns a gRPC status unless a caller may get another certificate of its own identity. A caller without a
// token may only if a workload may run as its account.
func (s *Server) renewable(caller identity.Peer) error {
	if caller.Proof != identity.Certificate {
		return nil
	}
	has, err := s.o.Workloads.HasAccount(caller.ID.Namespace, caller.ID.ServiceAccount)
	switch {
	case has:
		return nil
	case err != nil:
		return status.Errorf(codes.Unavailable, "%v: %v", authenticate.ErrUnavailable, err)
	}
	s.o.Log.Debug("certificate refused: nothing runs as the caller's service account", "caller", caller.String())
	return status.Errorf(codes.PermissionDenied, "%s may not have another certificate by the one that it has: "+
		"no Pod, WorkloadEntry or WorkloadGroup in namespace %s has the service account %s; a token proves it",
		caller, caller.ID.Namespace, caller.ID.ServiceAccount)
}
