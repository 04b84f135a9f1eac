// Package controllers runs reconcilers of controller-runtime while this replica is elected.
//
//   - manager.go: a Manager makes one manager.Manager of controller-runtime for each term of leadership, for such a
//     manager starts once. It holds no election: package leader does.
//   - controller.go: a Controller is a Reconciler with the state that outlasts terms. It turns failures into findings.
//   - retry.go: when a request, and what else has failed, is tried again.
//   - election.go: the Lease of a set of reconcilers.
//   - metrics.go: the metrics of controller-runtime, in this server's registry.
//   - objects.go: the objects that a Reconciler reads and writes.
//
// A Reconciler stays in the package of its domain. It needs no more than controller-runtime, api/kinds and api/diag.
// Its objects are unstructured: no scheme has types, and no discovery request is sent, because each Reconciler names
// its kinds.
//
// State: a Controller's, under its lock. The goroutines are those of controller-runtime and end with the term.
//
// # Guarantees
//
//   - A deposed leader writes nothing: all requests pass the Guard of the Lease [TestLease]. A write that the Guard has
//     refused is made again, in this term or the next one [TestNotLeaderForAMoment].
//   - A failed request is tried again for good, whatever the error is, at first after [limits.MinBackoff] and at last
//     after each [limits.MaxBackoff]; or at the constant interval that the Reconciler asks for, such as the Reconciler
//     of webhook configurations. It is a finding until it succeeds, the object is gone or the term ends [TestFailures],
//     [TestReconcilers]. A conflict is a finding after maxConflicts in a row.
//   - All other requests come before one that has failed: an object waits for at most one that takes long
//     [TestSlowObjects].
//   - A panic of a Reconciler ends neither the process nor the term for good. Controllers that cannot be started are a
//     finding [TestPanics].
//   - A Manager that is not needed sends no request [TestOnDemand]. A Manager that is limited to namespaces lists and
//     watches there alone [TestNamespaces].
//   - An object that another client changes back is written at most once a second, then at most every four seconds, and
//     is a finding until the other client stops [TestUndone].
//   - A kind that cannot be listed or watched, or whose list has no answer, is a finding. It stops only the Controllers
//     that watch it, until it can be [TestUnreadable], [TestReconcilers].
//   - All requests of a Manager together have the rate of its configuration [TestRate].
//   - Everything is reconciled at the beginning of a term. Notify never blocks, and may be called before, in and after
//     terms [TestTerms].
package controllers
