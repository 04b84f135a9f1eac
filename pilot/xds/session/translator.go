package session

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Cohort stands for the proxies that are sent identical configuration. Opaque here; comparable.
type Cohort = any

// Translator makes what proxies are sent. Its methods are called from many goroutines at once: NeedsReassign by Publish
// too, the others by at most one more than Options.Translations. They may panic, which costs one stream one type until
// the next snapshot.
type Translator interface {
	// ResolveCohort returns the cohort of a proxy at snapshot s. Called when a stream starts, and
	// after each snapshot in which more than endpoints changed, unless NeedsReassign reports false.
	ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) Cohort

	// Compare reports whether more than Live types, and what is beside changed workloads, may differ from the snapshot
	// before.
	Compare(s *snapshot.Snapshot) bool

	// NeedsReassign reports whether ResolveCohort may return something else at snapshot s than last, which it returned
	// at an earlier revision.
	NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last Cohort, since uint64) bool

	// Departed returns a proxy's cohort while its workload departs. now is the cohort at the newest snapshot, last an
	// earlier one of the same proxy. If the workload was known then and is unknown now, Departed returns now with the
	// inbound half of last, and true. Else it returns now and false.
	Departed(now, last Cohort) (Cohort, bool)

	// Shared returns the part of a cohort that proxies of other cohorts may have too. For it, Get returns what these
	// proxies are sent alike. nil: there is no such part.
	Shared(c Cohort) Cohort

	// Get returns the resources of a type that have one of some names, or all of them if names is nil. A type that is
	// not sent as a whole has no resources then. A Total type has a resource for every name. The assignment of a
	// cluster has the cluster's name. Equal configuration should be equal pointers: then nothing is compared. The error
	// lists the names that could not be translated. The client keeps what it has of those.
	Get(s *snapshot.Snapshot, c Cohort, typeURL string, names *envoy.Names) (envoy.Union, error)
}
