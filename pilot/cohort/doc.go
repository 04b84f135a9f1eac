// Package cohort decides which proxies receive identical configuration. Resolve reduces a proxy to comparable Inputs.
// Proxies with equal Inputs share their configuration. An Interner turns Inputs into a Key, which is cheap to compare.
// It drops the parts of keys that are no longer used, except those of the most recent keys.
//
// Inputs hold what affects the configuration and nothing else. They hold the objects whose selectors match a proxy's
// labels, and the names that traces contain (newTags), but no labels as such. Inputs.Address is always the proxy's own;
// Key.Shared leaves it out. Inbound has an address only if an ingress listener depends on it. Resolve is a pure
// function. The Interner is the only state, and is safe for concurrent use. The package starts no goroutine.
//
// # Adding an input
//
// Add a field to Client, Outbound or Inbound, and fill it in Resolve. If it comes from a workload, add the workload's
// field to sameProxyConfig of package snapshot.
//
// A label of the proxy's own workload that only selects objects needs no code: feature.Workload has it. A label whose
// value appears in resources is a field of feature.Tags, which newTags fills; hooks of clusters do not get Tags. A
// label of a workload that is called is a field of registry.Endpoint, which its Equal compares.
//
// # Guarantees
//
//   - A proxy whose cohort may differ is assigned again, whatever selected it, and no other proxy is:
//     [TestCohortsOutsideReassignStay], [pilot/translate.TestHistories].
//   - Labels split a cohort only if a selector matches some of them, or if traces name the workload by them. The
//     address splits an inbound half only if an ingress listener depends on it:
//     [TestLabelsSplitOnlyWhereASelectorDoes], [TestAddressSplitsOnlyWhereIngressNamesIt].
//   - The replicas of a proxy are the endpoints of its ReplicaSet in its region: [TestSelf].
//   - Where Gateways are limited to their own namespaces, a router has no Gateway of another one: [TestScopedGateways].
//   - A proxy's workload is the one that its proof and its name agree on: [TestWorkloadOfProxy], [TestRunsAs].
package cohort
