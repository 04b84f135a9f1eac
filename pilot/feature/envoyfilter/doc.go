// Package envoyfilter is the feature of EnvoyFilter, which patches what all other features have made.
//
//   - envoyfilter.go: what the feature declares, which objects and patches apply to a workload, and in which order.
//   - compile.go: reads the patches of an object: their values as messages of Envoy, and what is wrong with them.
//   - remarks.go: fields of a value that are not in its message.
//   - match.go: which patches apply to a cluster, a listener, a route configuration or a virtual host, by its name.
//   - apply.go: applies patches to one resource, and leaves out those with which Envoy would refuse it.
//   - listener.go, filters.go, routes.go: patches inside listeners, lists of filters, and routes.
//   - merge.go: merges one message into another.
//   - validate.go: what Envoy would refuse.
//   - findings.go: what users should know of patches that were not applied.
//   - types.go: links the messages that values may have.
//
// The patches of a resource apply by what they patch, from the outside in, and within that in the order of the objects:
// by priority, then those of the root namespace, then by age and name. The package holds no state but what it has
// compiled of objects.
//
// # Guarantees
//
//   - A patch changes what it matches for the workloads that its object selects. All other resources are the very
//     resources of a mesh without it: [pilot/translate.TestPatchesLeaveOthersAlone].
//   - A patch that cannot be applied, or that matches nothing, affects nothing else, and is a finding: [TestGoldens],
//     [TestLeftOut].
//   - Calls through real Envoys meet what patches add, change and remove, and an edit reaches the proxies that the
//     object selects, and no others: [deploy/e2e/traffic.TestPatches].
package envoyfilter
