package session

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Translator makes the resources of one kind of clients. Its methods are called concurrently: NeedsReassign also by the
// publishing goroutine, the others by at most one more goroutine than Options.Translations. A panic affects one type of
// one stream until the next snapshot.
type Translator interface {
	// ResolveCohort returns the cohort of a client at snapshot s. It is called when a stream starts, and after each
	// snapshot in which more than endpoints changed, unless NeedsReassign returns false.
	ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) cohort.Key

	// NeedsReassign reports whether ResolveCohort at snapshot s may differ from last, its result at an earlier
	// revision.
	NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last cohort.Key, since uint64) bool

	// Get returns the resources of a type with some names, or all if names is nil. Then a type that is not sent as a
	// whole has no resources. A Total type has a resource for every name. The assignment of a cluster has the cluster's
	// name. Equal configuration should be equal pointers, which need no comparison. The error has the names that could
	// not be translated. The client keeps its resources for them.
	Get(s *snapshot.Snapshot, c cohort.Key, typeURL string, names *envoy.Names) (envoy.Union, error)
}
