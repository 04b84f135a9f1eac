package xds

import (
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// World answers a Server's questions about the mesh that are not about its snapshots. Its methods must be safe for
// concurrent use.
type World interface {
	// WorkloadKnown reports whether a snapshot has the workload of a proxy. The first response of a stream waits up to
	// a second for such a snapshot.
	WorkloadKnown(*snapshot.Snapshot, *node.Proxy) bool

	// Workload returns the workload of a proxy in a snapshot, or nil.
	Workload(*snapshot.Snapshot, *node.Proxy) *registry.Workload

	// Running yields the Pods of a snapshot that run a proxy of this control plane. The proxy need not be connected.
	Running(*snapshot.Snapshot) iter.Seq[*registry.Workload]

	// ClusterPending reports whether the proxy's cluster is known by name and has not been read. Until then, a proxy
	// that resumes has no response and keeps its configuration.
	ClusterPending(*node.Proxy) bool

	// ServiceAccount returns the service account of the pod that a proxy belongs to according to a snapshot, or "" if
	// it is unknown. A peer that proved a different account is not served.
	ServiceAccount(*snapshot.Snapshot, *node.Proxy) string

	// InCluster reports whether a snapshot shows that a peer is in the cluster that its proxy names, if its credential
	// does not prove the cluster. A peer that is not has no secrets that Access guards.
	InCluster(*snapshot.Snapshot, identity.Peer, *node.Proxy) bool

	// WantSecrets replaces the Secrets and ConfigMaps that streams want, with cluster IDs in the keys. It is called
	// after each change, in order, and must not block.
	WantSecrets([]kinds.Key)

	// Sources returns the objects that a resource is made of. It is called for rejected resources.
	Sources(*envoy.Resource) []pushes.Object

	// DebugPages returns the response to a request for debug pages, by type and names. It returns an *authorize.Denied
	// if the peer may not read them.
	DebugPages(peer identity.Peer, typeURL string, names []string) ([]*anypb.Any, error)
}

// Standalone is a World without a mesh: each workload is known, each peer is in its cluster, and there are no debug
// pages.
type Standalone struct{}

// WorkloadKnown returns true.
func (Standalone) WorkloadKnown(*snapshot.Snapshot, *node.Proxy) bool { return true }

// Workload returns nil.
func (Standalone) Workload(*snapshot.Snapshot, *node.Proxy) *registry.Workload { return nil }

// Running yields nothing.
func (Standalone) Running(*snapshot.Snapshot) iter.Seq[*registry.Workload] {
	return func(func(*registry.Workload) bool) {}
}

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
