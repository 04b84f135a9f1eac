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
//   - An object that cannot be used keeps its last good version; without one it is left out, and of a security kind
//     replaced by the most restrictive one of its kind (deny all, STRICT). The response is acknowledged all the same:
//     rejecting it would bring nothing but the same again. The reason is a finding, until the server sends another.
//   - Only a response of a security kind that holds something without a usable name is rejected as a whole, for it
//     is not known what would be left open.
//   - While the server cannot be reached everything stays as it was, with a finding. Afterwards only true differences
//     are handed on: an object keeps its pointer when its content is the same, and is gone only when the whole of its
//     kind was answered without it. A kind that comes back empty is believed, for a server answers only when it knows;
//     that is logged and counted.
//
// What the objects mean, and which source wins for one key, is decided elsewhere. All state belongs to the goroutine
// that calls Run, from which the handlers are called too; the two getters may be called from anywhere. While a stream
// is open a second goroutine receives from it, and gRPC runs its own.
package mcp
