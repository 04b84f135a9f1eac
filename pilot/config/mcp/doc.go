// Package mcp is the source of configuration from another control plane: a client of MCP-over-xDS (xds://host:port in
// configSources) that requests the objects of every Istio kind over one state-of-the-world ADS stream.
//
// It requests each kind in its newest version, as istiods do, and acknowledges every response that it can decode. In
// detail:
//
//   - The protocol is state of the world instead of delta: a response has all objects of a kind, so deletions are known
//     even if the server does not remember this client.
//   - The handler is first called when all kinds have been answered. Until then the source has not synced, however long
//     the server is unreachable.
//   - An object with errors is in force without the faulty fields, and restricts no less. If it has a last good
//     version, that stays in force unless the new one restricts more, and an AuthorizationPolicy may be in force as
//     both. If no part of a security object can be read, the strictest object of its kind is in force (deny all,
//     STRICT). See Document.InForce of galley/validation. The response is acknowledged, because the server would send
//     the same again after a rejection. The reason is a finding until the server sends another version.
//   - A response of a security kind is rejected as a whole only if an object in it has no usable name, because it is
//     unknown what would be left open.
//   - While the server is unreachable all objects stay in force, with a finding. Afterwards only real differences are
//     delivered: an object with equal content keeps its pointer, and is deleted only if a response for its kind does
//     not have it. An empty response is trusted, because a server answers only when it has synced; it is logged and
//     counted.
//
// Other packages interpret the objects and decide which source takes precedence for a key. The goroutine of Run owns
// all state and calls the handlers; the two getters are safe for concurrent use. While a stream is open a second
// goroutine receives from it, and gRPC runs its own.
//
// # Guarantees
//
//   - A bad object is in force as one of an API server would be: [TestBadObject]. Tokens go to verified servers only:
//     [TestTokenGoesToVerifiedServers].
package mcp
