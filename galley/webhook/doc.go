// Package webhook is the validating webhook: it decides whether an API server may store an object of Istio's
// configuration, and says what is wrong with an object that it refuses.
//
// It checks only the object itself, by galley/validation. It reads no file, no clock, no network and no other state of
// the server, so its answers are the same before and after the server is ready. Package admission bounds the cost of a
// request, and galley/validation bounds the object.
//
// It accepts without a check: deletions and other operations that store nothing; writes of the status, which do not
// change the configuration; and updates of an object that is being deleted, so that finalizers can be removed from an
// object that was stored while the webhook was unavailable.
//
// It has no state but its metrics, and runs no goroutine.
//
// # Guarantees
//
//   - The webhook checks only what is to be stored, in istiod's words; an object that would cost too much is refused
//     as too complex: [TestReview], [TestTooComplex], [FuzzReview]. Its metrics have a bounded number of labels:
//     [TestMetrics].
package webhook
