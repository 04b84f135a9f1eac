// Package pushes records the last pushes as data: what caused each, how long its stages took, what proxies were sent
// and what they rejected.
//
// A Log is a ring, bounded in number and in bytes. Whoever commits adds a Commit to it before the snapshot is
// published, and streams count what they send in the Tally of the push that they have taken. A Tally is a few atomic
// numbers: nothing is kept for each proxy and push. What a stream is sent in one pass counts for the newest push in it,
// so a push that a slow stream skips has fewer proxies. What streams ask for by themselves, as they do when they start,
// is in a Tally of its own.
//
// Rejections are kept in a ring too. Those that say the same of the same push are one, with the number of proxies.
//
// No goroutine runs here, and the time is the callers'.
//
// # Guarantees
//
//   - The pushes and rejections that are kept are bounded in number and bytes: [TestBounds]. The same rejection by
//     many proxies is one, and is traced once: [TestSameRejectionsAreOne].
//   - A push names the object and the line that caused it. A rejection names the objects that the rejected resource is
//     made of: [pilot/bootstrap.TestPushesAsData].
package pushes
