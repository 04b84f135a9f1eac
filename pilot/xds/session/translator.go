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
	// ResolveCohort returns from what a proxy's configuration is made at snapshot s. Called when a stream starts, and
	// after each snapshot in which more than endpoints changed, unless NeedsReassign reports false.
	ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) Cohort

	// Compare reports whether more than Live types, and what is beside changed workloads, may differ from the snapshot
	// before.
	Compare(s *snapshot.Snapshot) bool

	// NeedsReassign reports whether ResolveCohort may return something else at snapshot s than last, which it returned
	// at an earlier revision.
	NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last Cohort, since uint64) bool

	// Departed returns now with the inbound half of last, if the proxy's workload was known when its cohort was last
	// and is not known now. Else it returns now and false.
	Departed(now, last Cohort) (Cohort, bool)

	// Shared returns what a cohort has in common with others, as a cohort for which Get returns only what they share.
	// nil: it shares nothing.
	Shared(c Cohort) Cohort

	// Get returns the resources of a type: those of the names, or all of them without any. A type that is not there as
	// a whole has none. Of a Total type no name is missing. The assignment of a cluster has the cluster's name. Equal
	// configuration should be equal pointers: then nothing is compared. The error lists the names that could not be
	// translated; those that are missing for it stay what they were.
	Get(s *snapshot.Snapshot, c Cohort, typeURL string, names *envoy.Names) (envoy.Union, error)
}
