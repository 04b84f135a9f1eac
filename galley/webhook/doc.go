// Package webhook is the validating webhook: it says whether an API server may store an object of Istio's
// configuration, and what is wrong with one that it may not.
//
// It judges the object alone, by galley/validation. It reads no file, no clock, no network and nothing of what the
// server holds, so it answers the same before and after the server is ready. Package admission bounds what a request
// costs before it comes here, and galley/validation bounds the object.
//
// What is let through without being judged: deletions and other operations that store nothing, writes of the status,
// which leave the configuration as it is, and updates of an object that is being deleted, or nobody could take the
// finalizer off an object that was stored while the webhook was away.
//
// It has no state but its metrics, and runs no goroutine.
//
// # Guarantees
//
//   - The webhook judges only what is to be stored, in istiod's words; an object that would cost too much is refused
//     as too complex: [TestReview], [TestTooComplex], [FuzzReview]. Its metrics have a bounded number of labels:
//     [TestMetrics].
package webhook
