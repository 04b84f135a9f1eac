// Package status reconciles the statuses of objects.
//
//   - status.go: what findings make of the status of an object: validationMessages, observedGeneration and the
//     condition PassedAnalysis, as istiod has them.
//   - analysis.go: Analysis, the reconciler of findings, for servers with PILOT_ENABLE_ANALYSIS.
//   - derived.go: Derived, the reconciler of the statuses that stages derive, such as the addresses of Ingresses.
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
// No write here starts a push: sources read only the addresses of Ingresses from statuses, and no translation reads
// those.
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
//   - A status is written with a version of the kind that the API server has: [TestVersionsChange],
//     [TestDerivedOlderVersion].
//   - Nothing is written again before the API server has brought the object back: [TestDerived].
//   - No status says that nothing is wrong while findings are left out: [TestWriterKnowsThatThereIsMore],
//     [galley/analysis.TestFindingsAreBounded].
package status
