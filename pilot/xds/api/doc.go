// Package api makes of a snapshot what clients of the api generator are sent: the objects of each Istio kind, as
// MCP-over-xDS has them.
//
// A type is named by group, version and kind, networking.istio.io/v1/VirtualService, in any version that is served: all
// share one schema. A resource is an istio.mcp.v1alpha1.Resource named namespace/name; its version and that in its
// metadata are hashes of what it holds, so every server gives the same. A type that this server does not know is
// answered with an empty list, not refused: a client of a newer release is complete without it.
//
// What is served is the snapshot's: what this server's own sources have, filtered as its proxies see it, and nothing of
// remote clusters. Objects that came from another control plane are that one's to serve, unless the Generator is told
// to relay them: of two that read each other each would keep alive what the other had from it. Who may ask is decided
// elsewhere. The package starts no goroutine. A Generator may be used from many at once; it holds resources and lists
// weakly, so that without clients it costs nothing.
package api
