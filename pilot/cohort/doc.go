// Package cohort decides which proxies receive identical configuration. Resolve reduces a proxy to comparable Inputs.
// Proxies with equal Inputs share their configuration. An Interner turns Inputs into a Key, which is cheap to compare.
// It drops the parts of a key that nobody uses, except for those of the most recent keys.
//
// Inputs hold what affects the configuration and nothing else. Of labels these are the objects whose selectors matched,
// and the names that traces have as literals (newTags), but no label as such. Inputs.Address is always the proxy's own;
// Key.Shared leaves it out. Inbound has an address only where an ingress listener depends on it. Resolve is a pure
// function. The Interner is the only state, and is safe for concurrent use. The package starts no goroutine.
//
// # A new input
//
// It is a field of Client, Outbound or Inbound, and Resolve fills it. The fields of a workload that matter to its proxy
// are in sameProxyConfig of package snapshot.
//
// A label of the proxy's own workload that only selects objects needs nothing: feature.Workload has it. One whose value
// goes into resources is a field of feature.Tags, which newTags fills; hooks of clusters do not get Tags. One of a
// workload that is called is a field of registry.Endpoint, and of its Equal.
//
// # Guarantees
//
//   - A proxy whose cohort may differ is assigned again, whatever selected it, and no other proxy is:
//     [TestCohortsOutsideReassignStay], [pilot/translate.TestHistories].
//   - Labels split a cohort only if a selector matches some of them, or if traces name the workload by them. The
//     address splits an inbound half only if an ingress listener depends on it:
//     [TestLabelsSplitOnlyWhereASelectorDoes], [TestAddressSplitsOnlyWhereIngressNamesIt].
//   - A proxy's workload is the one that its proof and its name agree on: [TestWorkloadOfProxy], [TestRunsAs].
package cohort
