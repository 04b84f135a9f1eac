// Package grpc makes the resources for applications that are xDS clients themselves, without a proxy: gRPC's own client
// and server (node metadata GENERATOR=grpc). Their tests are in pilot/translate/grpc_test.go; deploy/e2e/traffic runs
// real ones.
//
//   - clusters.go: a cluster is an Envoy's, reduced to the fields that gRPC reads.
//   - endpoints.go: endpoints are an Envoy's, without those for which gRPC rejects a whole assignment, and without
//     unhealthy ones, which gRPC does not call.
//   - listeners.go: "host:port" is the listener of a client, by any name that the host has in its namespace.
//     "xds.istio.io/grpc/lds/inbound/address:port" is the listener of a server: a port that some service has there.
//   - routes.go: "outbound|port||host" are the routes of one service, from its VirtualService.
//   - rbac.go: AuthorizationPolicies of a server.
//
// gRPC rejects a whole resource for one field that it does not know, and asks for each resource by its name. A name
// that does not exist has no resource.
//
// # Differences from a sidecar
//
//   - A server requires mutual TLS, unless PeerAuthentication says DISABLE: gRPC has no mode PERMISSIVE. It accepts any
//     certificate of the mesh's roots. AuthorizationPolicies restrict further.
//   - A client calls in plaintext, unless a DestinationRule says ISTIO_MUTUAL. Its bootstrap must have a certificate
//     provider named "default". gRPC does not know other certificates (SIMPLE, MUTUAL): such a cluster has no
//     endpoints.
//
// # Settings without effect on gRPC
//
// In a VirtualService: cors, headers, mirror and mirrors, rewrite, perTryTimeout, retry conditions that are not a gRPC
// status; TCP and TLS routes. Matches on a method other than POST, on the scheme, the authority and claims of a token
// match nothing. A match on a missing header by a value in withoutHeaders does not hold. A redirect or a direct
// response fails the call.
//
// In a DestinationRule: the connection pool except http2MaxRequests; simple load balancing except LEAST_REQUEST (all
// else is ROUND_ROBIN), and backendUtilization where an application does not know it; hashes by cookie, source address
// and query parameter; maglev, which is a ring hash; warmup; tunnel and proxyProtocol; sni and subjectAltNames of other
// TLS modes. Outlier detection uses the share of failed calls, because gRPC does not know consecutive errors. Without
// failurePercentageThreshold, which takes precedence, an endpoint is ejected if 85 % of at least as many calls in an
// interval fail.
//
// EnvoyFilters, WasmPlugins, TrafficExtensions, Telemetry, RequestAuthentications and ingress listeners of Sidecars
// have no effect. A policy that requires a token allows no requests. Requests about which an authorizer would decide
// (CUSTOM) are denied. The address of a client behind proxies is not known: a rule on it (remoteIpBlocks) allows
// nothing, or denies everything. Services that are resolved by DNS need exactly one endpoint, and services behind other
// networks are not reached.
package grpc
