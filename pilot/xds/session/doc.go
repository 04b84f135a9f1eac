// Package session is the protocol of one stream: the client's subscriptions, its resources, and its next response.
//
// The input is requests (Take) and pushes (Adopt), the output is responses (Next). There is no goroutine, clock or
// socket. Only one goroutine at a time may use a Session. Tests use transcripts and random histories. envoy.Type
// describes types, Profile describes clients, and a Translator makes the resources.
//
//   - watch.go: one type on one stream: the resources that the client has, must be sent, must lose, or has rejected.
//   - delta.go and sotw.go: requests of the two protocols. response.go: responses, in the order of types.
//   - initial.go: the resources of a client that resumes. hosts.go: virtual hosts on demand.
//   - session.go: the stream. status.go: its state for introspection. translator.go: the source of resources.
//   - grants.go: the secrets that a guarded session may send.
//   - debts.go: the revisions that the client does not have in force. inforce.go: when it has them.
//   - key.go: the key of a subscriber group. push.go: the reasons to compare resources.
//
// A rejected resource is not sent again until it changes. If only one of several resources in a rejected response is
// bad, they are bisected to find it, except that clusters which Envoy's message names are known to be bad.
// A state-of-the-world response with a whole type is not divided: it is sent again when it changes.
//
// A pass is the sequence of responses for one snapshot: types in their order, then removals. A session finishes its
// pass before it takes the newest snapshot, so all responses of a pass belong to one state of the world, and a slow
// stream skips states.
//
// # Guarantees
//
//   - After any history of requests and snapshots, a stream has sent what its proxy should have, and a rejected
//     version is not sent again unchanged. The virtual hosts that are sent apart equal the whole route configuration,
//     come after it each time that it is sent, and leave a bounded number of tombstones in an Envoy: [TestHistories],
//     [TestSession/vhds], [pilot/translate.TestHistories], [pilot/envoy.TestNewRoute], [deploy/e2e.TestOldestEnvoy].
//   - A revision that a session does not owe is in force: the client has acknowledged what the revision changed, as of
//     it or of a later one, also if it rejects, is late or resumes. Once it has everything it owes nothing:
//     [TestHistories], [TestSession/debts], [pilot/xds.TestProgressOfRejections],
//     [pilot/xds.TestProgressWaitsForNewNames].
//   - A client that rejects a response that no push caused, such as a part of its first configuration, owes all
//     revisions up to the one of that response: [TestSession/debts_rejected], [TestHistories].
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
//     [TestKeepsVersions],
//     [TestClosedStreamsAreFreed].
//   - In a real Envoy virtual hosts come, change and go without a failed request, also when the server crashes or the
//     option changes: [deploy/e2e.TestDelta/Hosts].
package session
