// Package status reconciles the statuses of objects.
//
//   - status.go: what findings make of the status of an object: validationMessages, observedGeneration and the
//     condition PassedAnalysis, as istiod has them.
//   - analysis.go: Analysis, the reconciler of findings, for servers with PILOT_ENABLE_ANALYSIS.
//   - conditions.go: what the conditions Reconciled, Reconciling and Stalled say.
//   - distribution.go: Distribution, the reconciler of these conditions, for servers with
//     PILOT_ENABLE_CONFIG_DISTRIBUTION_STATUS.
//   - derived.go: Derived, the reconciler of the statuses that stages derive, such as the addresses of Ingresses.
//   - programmed.go: with the same variable, Gateways and ListenerSets are Programmed once they are in force.
//   - writer.go: the requests to the API server, and their pace.
//
// A Derived compares what a status should be with what the object has. It corrects what other clients write into the
// same fields, and writes nothing that is there already.
//
// An Analysis writes only objects with findings, and objects that had some. A term begins with a list of the objects
// that have messages of an earlier leader. Each write names the version that was read, so that a change by another
// client is a conflict, and the object is read again. What other clients put into a status stays. Objects of other
// revisions, and of namespaces that this control plane does not select, are not written. An object that has changed
// since it was analysed is written after the next analysis. While findings are left out because there are too many, no
// status comes to say that nothing is wrong. The findings are read after each analysis, and every 10 seconds: no
// analysis follows a new object that is invalid.
//
// A Distribution follows an object from its change until it is in force, and then forgets it. A term begins with a list
// of the objects whose status does not say that they are in force, some at a time. Nothing is written about an object
// that was in force when a proxy connects, or connects again. With an Analysis beside it, observedGeneration is the
// Distribution's: kstatus reads it as the generation that is in force.
//
// All reconcilers of a server have one limit. No write here starts a push: sources read only the addresses of Ingresses
// from statuses, and no translation reads those.
//
// State: a reconciler's, owned by the goroutine that reconciles. Analysed may be called from any goroutine.
//
// # Guarantees
//
//   - The status of an object has its findings, and nothing else there changes: [TestPatch], [TestWant], [TestTexts].
//     One replica writes it, with the rights of the chart, and no write starts a push. The loser of two competing
//     objects has a status that names the winner and the reason: [deploy/e2e/kube.TestStatus].
//   - Only objects of this revision are written, and only in the version that was analysed: [TestWriterTakesOver],
//     [TestWriterIsStale]. Nothing is written before the first analysis: [TestRunWaitsForAnalysis]. A finding that no
//     analysis brings is written within 10 seconds: [TestRunLooksByItself]. A write that is refused is a finding, and
//     backs off until it succeeds; the objects of a forbidden kind back off together, with one finding:
//     [TestWriterIsRefused]. An object that is forbidden alone does not stop the others: [TestOneIsForbidden].
//   - The conditions say what package progress answers, for the generation that the API server has, and kstatus reads
//     an object with a status as Current exactly when it is in force: [TestConditions], [TestStaleGeneration],
//     [TestUnusable], [deploy/e2e/kube.TestConditions]. What other replicas answer is part of it: [TestOthers].
//   - A quick change costs one write, a longer one at most one in 10 seconds, and no change none: [TestDistribution].
//   - What has not changed since the start is written once and does not delay what changes: [TestFirstObjects].
//   - An Analysis and a Distribution keep what the other one writes: [TestBesideAnalysis].
//   - A Gateway becomes Programmed when it is in force, and stays it: [TestProgrammed].
//   - A status is written with a version of the kind that the API server has: [TestVersionsChange],
//     [TestDerivedOlderVersion].
//   - Nothing is written again before the API server has brought the object back: [TestDerived].
//   - No status says that nothing is wrong while findings are left out: [TestWriterKnowsThatThereIsMore],
//     [galley/analysis.TestFindingsAreBounded].
package status
