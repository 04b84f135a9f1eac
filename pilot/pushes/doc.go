// Package pushes records the last pushes as data: what caused each, how long its stages took, what proxies were sent
// and what they rejected.
//
// A Log is a ring, bounded in number and in bytes. The committing goroutine adds a Commit before the snapshot is
// published, and each stream records its responses in the Tally of the push that it has taken. A Tally is a few atomic
// numbers, so that memory does not grow with proxies and pushes. If a stream takes several pushes at once, its
// responses belong to the newest one, so a push that a slow stream skips has fewer proxies. Responses to requests
// outside a push, such as the first ones of a stream, are in a Tally of their own.
//
// Rejections are kept in a ring too. Equal rejections of one push are one entry with the number of proxies.
//
// No goroutine runs here. Callers pass the time.
//
// # Guarantees
//
//   - The pushes and rejections that are kept are bounded in number and bytes: [TestBounds]. The same rejection by
//     many proxies is one, and is traced once: [TestSameRejectionsAreOne].
//   - A push names the object and the line that caused it. A rejection names the objects that the rejected resource is
//     made of: [pilot/bootstrap.TestPushesAsData].
package pushes
