// Package grpc makes what applications are sent that are clients of xDS themselves, without a proxy: gRPC's own
// client and server (node metadata GENERATOR=grpc). Their tests are in pilot/translate/grpc_test.go;
// deploy/e2e/traffic runs real ones.
//
//   - clusters.go: a cluster is an Envoy's, cut down to what gRPC reads.
//   - endpoints.go: endpoints are those of an Envoy, without what gRPC rejects a whole assignment for and those that
//     are not well, which it does not call.
//   - listeners.go: "host:port" is what a client calls, by any name that the host has in its namespace.
//     "xds.istio.io/grpc/lds/inbound/address:port" is where a server listens: a port that some service has there.
//   - routes.go: "outbound|port||host" are the routes of one service, from its VirtualService.
//   - rbac.go: AuthorizationPolicies of a server.
//
// gRPC rejects a whole resource for one field that it does not know, and asks for each resource by its name. A name
// that does not exist has no resource.
//
// # What differs from a sidecar
//
//   - A server takes mutual TLS, unless PeerAuthentication says DISABLE: gRPC knows no mode PERMISSIVE. Any certificate
//     of the mesh's roots will do; AuthorizationPolicies decide more.
//   - A client calls in plaintext, unless a DestinationRule says ISTIO_MUTUAL. Its bootstrap must have a certificate
//     provider named "default". Its own certificates and those of others (SIMPLE, MUTUAL) are not known to gRPC: such a
//     cluster has no endpoints.
//
// # What has no effect on gRPC
//
// Of a VirtualService: cors, headers, mirror and mirrors, rewrite, perTryTimeout, retry conditions that are no status
// of gRPC, backoff aside; TCP and TLS routes. Matches on the method other than POST, on the scheme, the authority and
// claims of a token match nothing. A match on a missing header by a value in withoutHeaders does not hold. A redirect
// or a direct response fails the call.
//
// Of a DestinationRule: the connection pool but http2MaxRequests; simple load balancing but LEAST_REQUEST (all else is
// ROUND_ROBIN); hashes by cookie, source address and query parameter; maglev, which is a ring hash; warmup; tunnel and
// proxyProtocol; sni and subjectAltNames of other TLS modes. Outlier detection is by the share of failed calls:
// gRPC knows no consecutive errors. An endpoint is ejected if 85 % of at least as many calls in an interval fail.
//
// EnvoyFilters, WasmPlugins, TrafficExtensions, Telemetry, RequestAuthentications and ingress listeners of Sidecars
// have no effect. A policy that demands a token lets nobody in. What an authorizer would decide (CUSTOM) is refused.
// The address of a client behind proxies is not known: a rule on it (remoteIpBlocks) allows nothing, or denies
// everything. Services that are resolved by DNS need exactly one endpoint, and services behind other networks are not
// reached.
package grpc
