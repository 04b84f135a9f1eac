package xds

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// World is what a Server asks about the mesh, beside what is in its snapshots. Its methods may be called from any
// goroutine.
type World interface {
	// WorkloadKnown reports whether a snapshot has the workload of a proxy. The first answer of a stream waits up to a
	// second for such a snapshot.
	WorkloadKnown(*snapshot.Snapshot, *node.Proxy) bool

	// ClusterPending reports whether the proxy's cluster is known by name and has not been read yet. Until it was read, a
	// proxy that resumes is not answered and keeps what it has.
	ClusterPending(*node.Proxy) bool

	// ServiceAccount returns the service account of the pod that a proxy belongs to, as a snapshot has it, or "" if it is
	// unknown. A peer that proved to be another account is not served.
	ServiceAccount(*snapshot.Snapshot, *node.Proxy) string

	// InCluster reports whether a snapshot shows that a peer which proved an identity, but no cluster, is in the cluster
	// that its proxy names. Otherwise it gets no secrets that an Access guards.
	InCluster(*snapshot.Snapshot, identity.Peer, *node.Proxy) bool

	// WantSecrets takes all Secrets and ConfigMaps that streams want, by the IDs of clusters. It is called in order, after
	// each change of them, and must not block.
	WantSecrets([]kinds.Key)

	// Sources returns the objects that a resource is made of. It is asked about resources that proxies reject.
	Sources(*envoy.Resource) []pushes.Object

	// DebugPages returns the answer to a peer that asks for debug pages by a type and names. It returns an
	// *authorize.Denied to a peer that may not read them.
	DebugPages(peer identity.Peer, typeURL string, names []string) ([]*anypb.Any, error)
}

// Standalone is the World of a Server that has nothing to ask: each workload is known, each peer is in its cluster, and
// there are no debug pages.
type Standalone struct{}

// WorkloadKnown returns true.
func (Standalone) WorkloadKnown(*snapshot.Snapshot, *node.Proxy) bool { return true }

// ClusterPending returns false.
func (Standalone) ClusterPending(*node.Proxy) bool { return false }

// ServiceAccount returns "".
func (Standalone) ServiceAccount(*snapshot.Snapshot, *node.Proxy) string { return "" }

// InCluster returns true.
func (Standalone) InCluster(*snapshot.Snapshot, identity.Peer, *node.Proxy) bool { return true }

// WantSecrets does nothing.
func (Standalone) WantSecrets([]kinds.Key) {}

// Sources returns nil.
func (Standalone) Sources(*envoy.Resource) []pushes.Object { return nil }

// DebugPages returns an error with the code Unimplemented.
func (Standalone) DebugPages(_ identity.Peer, typeURL string, _ []string) ([]*anypb.Any, error) {
	return nil, status.Errorf(codes.Unimplemented, "%s is not served", typeURL)
}
