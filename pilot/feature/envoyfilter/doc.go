// Package envoyfilter is the feature of EnvoyFilter, which patches the resources that all other features have made.
//
// - envoyfilter.go: what the feature declares, which objects and patches apply to a workload, and in which order.
// - compile.go: parses the patches of an object: their values as messages of Envoy, and findings.
// - remarks.go: fields of a value that are not in its message.
// - match.go: which patches apply to a cluster, a listener, a route configuration or a virtual host, by its name.
// - apply.go: applies patches to one resource, and leaves out those with which Envoy would reject it.
// - listener.go, filters.go, routes.go: patches inside listeners, lists of filters, and routes.
// - merge.go: merges one message into another.
// - validate.go: what Envoy would reject.
// - findings.go: findings about patches that were not applied.
// - types.go: links the messages that values may have.
//
// The patches of a resource are ordered by their targets, from the outside in, and within that in the order of the
// objects: by priority, then those of the root namespace, then by age and name. The only state of the package is a
// cache of compiled objects.
//
// # Guarantees
//
//   - A patch changes the matching resources of the workloads that its object selects. All other resources are the very
//     resources of a mesh without it: [pilot/translate.TestPatchesLeaveOthersAlone].
//   - A patch that cannot be applied, or that matches nothing, affects nothing else, and is a finding: [TestGoldens],
//     [TestLeftOut].
//   - Calls through real Envoys meet what patches add, change and remove, and an edit reaches the proxies that the
//     object selects, and no others: [deploy/e2e/traffic.TestPatches].
package envoyfilter
