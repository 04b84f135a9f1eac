// Package mcp is the source of configuration that another control plane is: a client of MCP-over-xDS (xds://host:port
// in configSources), which asks it for the objects of every Istio kind over one state-of-the-world ADS stream.
//
// It asks for each kind in its newest version, as istiods do, and acknowledges every response that it could take apart.
// In detail:
//
//   - State of the world rather than delta: an answer is the whole of a kind, so what is gone is known whatever the
//     server remembers of this client.
//   - The handler is first called when all kinds have been answered. Until then the source has not synced, however long
//     the server cannot be reached.
//   - An object with errors is in force without them, and restricts no less. If it has a last good version, that stays
//     in force unless the new one restricts more, and an AuthorizationPolicy may be in force as both. If nothing of a
//     security object can be read, the strictest object of its kind is in force (deny all, STRICT). See
//     Document.InForce of galley/validation. The response is acknowledged, for the server would send the same again
//     after a rejection. The reason is a finding until the server sends another version.
//   - A response of a security kind is rejected as a whole only if an object in it has no usable name: it is not known
//     what would be left open.
//   - While the server cannot be reached everything stays as it was, with a finding. Afterwards only true differences
//     are handed on: an object keeps its pointer when its content is the same, and is gone only when the whole of its
//     kind was answered without it. A kind that comes back empty is believed, for a server answers only when it knows;
//     that is logged and counted.
//
// What the objects mean, and which source wins for one key, is decided elsewhere. All state belongs to the goroutine
// that calls Run, from which the handlers are called too; the two getters may be called from anywhere. While a stream
// is open a second goroutine receives from it, and gRPC runs its own.
//
// # Guarantees
//
//   - A bad object is in force as one of an API server would be: [TestBadObject]. Tokens go to verified servers only:
//     [TestTokenGoesToVerifiedServers].
package mcp
