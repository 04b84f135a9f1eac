// Package session is the protocol of one stream: what the client subscribes to, what it has, and what it is sent next.
//
// Requests go in by Take and pushes by Adopt, responses come out by Next. There is no goroutine, clock or socket here;
// a Session is used by one goroutine at a time and tested by transcripts and random histories. What a type is comes
// from envoy.Type, what a client is from Profile, and what it should have from a Translator.
//
//   - watch.go: one type on one stream: what was sent, what diverged, what is to be resent or removed, what was
//     rejected.
//   - delta.go and sotw.go: requests of the two protocols. response.go: responses, in the order of types.
//   - initial.go: what a client that resumes has. hosts.go: virtual hosts that go by themselves.
//   - session.go: the stream as a whole. status.go: what introspection shows of it. translator.go: where resources come
//     from.
//   - grants.go: which secrets a guarded session may send.
//   - key.go: the key of a subscriber group. push.go: why a stream compares what it has.
//
// What a client rejects is not sent again while it is the same. Of a response of several resources only one may be bad:
// they are bisected until the bad one is alone, but for clusters that Envoy's message blames by name.
//
// A pass is what one snapshot makes a stream send: types in their order, then removals. A session finishes its pass
// before it takes the newest snapshot, so the order on the wire always belongs to one state of the world, and a slow
// stream skips the states in between.
//
// # Guarantees
//
//   - After any history of requests and snapshots, a stream has sent what its proxy should have, and a rejected
//     version is not sent again unchanged. The virtual hosts that are sent apart equal the whole route configuration,
//     come after it each time that it is sent, and leave a bounded number of tombstones in an Envoy: [TestHistories],
//     [TestSession/vhds], [pilot/translate.TestHistories], [pilot/envoy.TestNewRoute], [deploy/e2e.TestOldestEnvoy].
//   - A rejected resource delays no other, and a change costs in proportion to what changed:
//     [TestOneBadClusterHoldsUpNoOther]. A client that rejects everything costs a bounded amount of memory:
//     [TestBisectionIsBounded]. A proxy that lacks a rejected version is shown to reject it, also when the version
//     went and came again: [pilot/xds.TestRejectedIsShown].
//   - A client that asks for assignments that do not exist is answered for each name, and costs at most twice what it
//     sent: [TestUnknownAssignments], [TestUnknownNamesCostLittle].
//   - A secret that is removed while its name is unsubscribed and subscribed again is removed from the client:
//     [TestSecretGoesWhileItsNameIsTakenBack].
//   - A client that resumes has no cluster removed before its listeners and routes are known, however late the server
//     reads its requests: [TestSession/delta_reconnect_late], [pilot/xds.TestClustersStayUntilResumerHasAnswered].
//   - The versions that a client resumed with, and closed streams, are freed: [TestInitialVersionsAreFreed],
//     [TestClosedStreamsAreFreed].
//   - In a real Envoy virtual hosts come, change and go without a failed request, also when the server crashes or the
//     option changes: [deploy/e2e.TestDelta/Hosts].
package session
