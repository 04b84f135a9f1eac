// Package controller reconciles the webhook configurations of this server's revision, so that an API server calls the
// webhooks and trusts their certificate. It changes only objects with the label istio.io/rev of the revision, which
// includes the configurations of revision tags.
//
//   - controller.go: the Reconciler, which package pilot/controllers runs.
//   - wanted.go: the difference between a configuration and the wanted one, and the patch for it; pure. The caBundle of
//     each webhook is the roots of the server's certificate. A webhook that validates refuses objects that it cannot be
//     asked about (Fail), once it is known to work.
//   - probe.go: the dry run that shows whether a webhook works: the webhook itself refuses an invalid object.
//
// A configuration that says Fail stays so. A server that comes back after an outage serves without any write.
//
// Every replica observes the roots that API servers trust, because they decide which certificate it shows. Only the
// leader writes.
// writes.
//
// State: only the clients of a term.
//
// # Guarantees
//
//   - A webhook fails closed once an invalid object was really refused, and never opens again by itself. A change that
//     another client makes is corrected at most once a second, by the leader, and only in configurations of the own
//     revision: [TestFailsClosedWhenItWorks], [TestFailsClosedStaysSo], [TestNoHotLoop], [TestOnlyTheLeaderWrites],
//     [deploy/e2e/kube.TestWebhooks].
//   - No valid object is refused while certificates of one CA after another are shown at 20 writes a second, and a
//     server that was away is tested again without a write: [deploy/e2e/kube.TestNothingIsRefusedWrongly].
package controller
