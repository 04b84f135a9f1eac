package xds

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Cohort stands for the proxies that are sent identical configuration. Opaque here; comparable.
type Cohort = any

// Translator gives what proxies are sent. Its methods are called from many goroutines at once, NeedsReassign by Publish too, the others by at most one more than Options.Translations; they may panic,
// which costs one stream one type until the next snapshot.
type Translator interface {
	// ResolveCohort says from what a proxy's configuration is made at snapshot s. Called when a stream starts, and after each snapshot in which more than endpoints
	// changed, unless NeedsReassign denies that it would be something else.
	ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) Cohort

	// NeedsReassign tells whether ResolveCohort may give something else at snapshot s than last, which it gave at an earlier revision.
	NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last Cohort, since uint64) bool

	// Departed returns now with the inbound half of last, if the proxy's workload was known when its cohort was last and is not known now. Else it returns now and
	// false.
	Departed(now, last Cohort) (Cohort, bool)

	// Audience gives what the outbound halves of a cohort's Unions are made from, and the inbound half of its endpoints: equal for cohorts of which they are equal. nil
	// where nothing is shared.
	Audience(c Cohort) any

	// Wildcard gives all resources of ClusterType or ListenerType, and the zero Union for types that cannot be asked for as a whole. Equal configuration
	// should be equal pointers: then nothing is compared.
	Wildcard(s *snapshot.Snapshot, c Cohort, typeURL string) envoy.Union

	// Outbound gives the half of that which depends on nothing but the cohort's Audience.
	Outbound(s *snapshot.Snapshot, c Cohort, typeURL string) *envoy.Set

	// Subscribed gives the resources of EndpointType or RouteType (and others) of those names. For those two none is missing: what does not exist is an empty
	// resource of that name, so that Envoy warms. Of other types what does not exist is missing. The assignment of a cluster has the cluster's name. Equal
	// configuration should be equal pointers. The error tells which names could not be translated; those that are missing for it stay what they were.
	Subscribed(s *snapshot.Snapshot, c Cohort, typeURL string, names *envoy.Names) (envoy.Union, error)
}
