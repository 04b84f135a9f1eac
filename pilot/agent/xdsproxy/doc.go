// Package xdsproxy serves the socket on which Envoy requests its configuration. Each stream of Envoy's has one stream
// to the control plane with the same protocol: state of the world or delta.
//
// Messages are forwarded as the bytes that were received. Only the type URL is read of most messages. Nothing is
// buffered: flow control makes a sender wait for a slow receiver. When one side ends its stream, so does the other.
// Envoy reconnects and names the versions that it has. Three kinds of messages are the agent's own:
//
//   - The agent subscribes to the types of Handlers, such as the name table, when Envoy first requests listeners. It
//     acknowledges or rejects the responses itself, and does not forward them.
//   - The health of an application on a virtual machine is reported on each stream, and again on each new one.
//   - Extensions are passed to Options.Extensions, which may fetch their modules and replace them. On an error the
//     agent rejects the response on Envoy's behalf. Modules that are unavailable are fetched again, and the extensions
//     are sent when they are available.
//
// A stream has four goroutines, one for each direction of each side. A fifth handles extensions, and there is one more
// while extensions are fetched again.
//
//   - proxy.go: the socket and its server
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
//     is reported on each new stream: [TestHealth]. An extension that is fetched delays nothing else: [TestExtensions].
//     Envoy's next request is valid after the agent rejected an extension: [TestRejectedInItsStead]. A missing module
//     is fetched again later, and Envoy is then sent its extension: [TestMissingExtensions].
//   - A message that is not a response ends its stream alone: [TestHostile].
//   - The local port of debug pages serves nothing else, to this host alone, and to no web page: [TestDebug],
//     [TestPages], [TestDebugAnswersNoWebPage].
//   - Beside real Envoys no handshake fails while certificates are renewed, nor while the control plane is away past
//     the time at which they should be: [deploy/e2e/mtls.TestAgentParts].
package xdsproxy
