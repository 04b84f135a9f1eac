// Package xdsproxy is the socket on which Envoy asks for its configuration. Each stream of Envoy's has one stream to
// the control plane, of the same protocol: state of the world or delta.
//
// Messages are passed on as the bytes they came in; of most only the type is looked for. Nothing is kept: whoever reads
// slowly is waited for, by flow control, up to whoever sends. When either side ends its stream, so does the other:
// Envoy connects again and says which versions it has. Three sorts of messages are the agent's own:
//
//   - The types of Handlers, such as the name table, are subscribed to by the agent when Envoy first asks for
//     listeners. They are acknowledged or rejected by it, and not passed on.
//   - Health of an application on a virtual machine is reported on each stream, and again on each new one.
//   - Extensions are given to Extensions, which may fetch what they name and write something else in its place. What
//     it fails on is rejected in Envoy's stead. What it has not got yet is asked for again, and sent once it is there.
//
// A stream has four goroutines: of each side one that receives and one that sends, which alone sends; a fifth for
// extensions; and one while some of these are fetched again.
//
//   - proxy.go: the socket, and who listens
//   - stream.go: one stream
//   - extensions.go: extensions of one stream
//   - wire.go: messages as bytes
//   - debug.go: debug pages of the control plane on a local port
//
// # Guarantees
//
//   - Messages, rejections and the versions that Envoy resumes with are passed on unchanged, and the end of one side's
//     stream ends the other's: [TestDelta]. An Envoy that does not read slows the control plane's stream and costs no
//     memory: [TestBackpressure]. A closed stream leaves nothing behind: [TestReconnects].
//   - The agent's own types never reach Envoy; the agent acknowledges or rejects them: [TestOwnSubscriptions]. Health
//     is reported on each new stream: [TestHealth]. An extension that is fetched delays nothing else:
//     [TestExtensions]. Envoy's next request is valid after the agent rejected an extension: [TestRejectedInItsStead].
//     A missing module is fetched again later, and Envoy is then sent its extension: [TestMissingExtensions].
//   - A message that is not a response ends its stream alone: [TestHostile].
//   - The local port of debug pages serves nothing else, to this host alone, and to no web page: [TestDebug],
//     [TestPages], [TestDebugAnswersNoWebPage].
//   - Beside real Envoys no handshake fails while certificates are renewed, nor while the control plane is away past
//     the time at which they should be: [deploy/e2e/mtls.TestAgentParts].
package xdsproxy
