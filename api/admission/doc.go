// Package admission answers AdmissionReviews over HTTP: it reads what an API server asks, has a function review it, and
// writes the answer.
//
// Whoever reaches the port may send anything, so the cost of a request is bounded before anybody looks at it: the size
// of its body, the time that it takes to arrive, how much memory all bodies take, and how much is reviewed at once. The
// bounds are those of package limits. What exceeds them waits for a while, and is refused then. No address gets all of
// them, and a body that arrives slowly gives its memory back when others wait for it: so whoever sends nothing does not
// hold up an API server.
//
// A Gate holds what is taken of the bounds, and is shared by all webhooks of a server. It runs no goroutine.
//
// # Guarantees
//
//   - A client that announces a body and never sends it cannot block other reviews: [TestHoldUp]. The reviews of one
//     address leave room for those of other addresses: [TestReviewsOfOneAddress], [TestReviewsOfStrangers].
//   - A request that is not a review, is too large or too slow, or is one of too many at once is refused, each with
//     its HTTP status, and costs a bounded amount of memory: [TestNoReviews], [TestSlowBody], [TestReviewsAtOnce],
//     [TestReviewsWaitNoLonger], [TestMemory], [FuzzReview].
package admission
