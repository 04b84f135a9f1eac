package session

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Translator makes what the clients of one kind are sent. Its methods are called from many goroutines at once:
// NeedsReassign also by the one that publishes, the others by at most one more than Options.Translations. They may
// panic, which costs one stream one type until the next snapshot.
type Translator interface {
	// ResolveCohort returns the cohort of a client at snapshot s. It is called when a stream starts, and after each
	// snapshot in which more than endpoints changed, unless NeedsReassign returns false.
	ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) cohort.Key

	// NeedsReassign reports whether ResolveCohort may return something else at snapshot s than last, which it returned
	// at an earlier revision.
	NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last cohort.Key, since uint64) bool

	// Get returns the resources of a type that have one of some names, or all of them if names is nil. A type that is
	// not sent as a whole has no resources then. A Total type has a resource for every name. The assignment of a
	// cluster has the cluster's name. Equal configuration should be equal pointers: then nothing is compared. The error
	// lists the names that could not be translated. The client keeps what it has of those.
	Get(s *snapshot.Snapshot, c cohort.Key, typeURL string, names *envoy.Names) (envoy.Union, error)
}
