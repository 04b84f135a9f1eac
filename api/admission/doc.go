// Package admission answers AdmissionReviews over HTTP: it decodes the request of an API server, calls a function to
// review it, and writes the answer.
//
// Any client that reaches the port may send anything, so the cost of a request is bounded before it is reviewed: the
// size of its body, the time that it takes to arrive, the memory of all bodies, and the number and size of concurrent
// reviews. Package limits has the bounds. A request that exceeds them waits for a while and is then refused. No address
// may use all of a bound, and a body that arrives slowly loses its memory when others wait for it, so a client that
// sends nothing cannot block an API server.
//
// A Gate holds the used parts of the bounds, and all webhooks of a server share it. It runs no goroutine.
//
// # Guarantees
//
//   - A client that announces a body and never sends it cannot block other reviews: [TestHoldUp]. The reviews of one
//     address leave room for those of other addresses: [TestReviewsOfOneAddress], [TestReviewsOfStrangers].
//   - A request that is not a review, is too large or too slow, or is one of too many at once is refused, each with
//     its HTTP status, and costs a bounded amount of memory: [TestNoReviews], [TestSlowBody], [TestReviewsAtOnce],
//     [TestReviewsWaitNoLonger], [TestMemory], [FuzzReview].
package admission
