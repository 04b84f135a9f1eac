// Package api makes the resources for clients of the api generator: the objects of each Istio kind, in the format of
// MCP-over-xDS.
//
// A type is group, version and kind, such as networking.istio.io/v1/VirtualService, in any served version, because all
// share one schema. A resource is an istio.mcp.v1alpha1.Resource named namespace/name. Its version, also the one in its
// metadata, is a hash of its content, so that it is the same at every server. The response for an unknown type is an
// empty list, so that a client of a newer release does not wait for it.
//
// The resources are the objects of the snapshot: from this server's own sources, filtered as for proxies, without
// remote clusters. Objects from another control plane are left out unless the Generator relays them, because servers
// that read each other would keep deleted objects alive. Other packages decide who may request them. The package starts
// no goroutine. A Generator is safe for concurrent use. It holds resources and lists weakly, so that it costs nothing
// without clients.
package api
