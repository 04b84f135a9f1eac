package xds

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Cohort stands for the proxies that are sent identical configuration. Opaque here; comparable.
type Cohort = any

// Translator gives what proxies are sent. Its methods are called from many goroutines at once, at most Options.Translations of them; they may panic, which
// costs one stream one type until the next snapshot.
type Translator interface {
	// Join says from what a proxy's configuration is made at snapshot s. Called when a stream starts and after each snapshot in which more than endpoints
	// changed.
	Join(s *snapshot.Snapshot, p *node.Proxy) Cohort

	// Wildcard gives all resources of ClusterType or ListenerType, and the zero Union for types that cannot be asked for as a whole. Equal configuration
	// should be equal pointers: then nothing is compared.
	Wildcard(s *snapshot.Snapshot, c Cohort, typeURL string) envoy.Union

	// Named gives a resource of EndpointType or RouteType (and others) by name. Never nil for those two: what does not exist is an empty resource of that
	// name, so that Envoy warms. nil for a resource of another type that does not exist. The assignment of a cluster has the cluster's name.
	Named(s *snapshot.Snapshot, c Cohort, typeURL, name string) *envoy.Resource

	// Assignments lists the names of the endpoint resources that show the endpoints of a service to that cohort.
	Assignments(s *snapshot.Snapshot, c Cohort, key registry.ServiceKey) []string
}
