// Package traffic tests what real Envoys, and applications that use xDS themselves, do with the requests of pods. Each
// test runs a control plane that follows a directory and the pods of that directory. The tests run at the same time, in
// processes and network namespaces of their own.
//
//   - mesh_test.go: starting a mesh; the requests, connections and servers of pods. All tests use it.
//   - authz_*: AuthorizationPolicies, with authorizers that are servers of the tests.
//   - destinationrule_*: connection pools, outlier detection, tunnels, TLS and inbound pools of sidecars.
//   - egress_*: hosts that are resolved when they are called, egress proxies, listeners on Unix sockets.
//   - envoyfilter_*: patches of EnvoyFilters.
//   - extension_*: TrafficExtensions and WasmPlugins.
//   - gatewayapi_*: the sample gateway-api, without a cluster.
//   - grpc_*: clients and servers of grpc-go without a proxy.
//   - jwt_*: RequestAuthentications and servers of keys.
//   - locality_*: failover, distribution and retries by locality, and balancing by zone.
//   - meshconfig_*: settings of the mesh configuration.
//   - sessions_test.go: sessions that stay at one endpoint.
//   - telemetry_*: access logs and traces, with collectors that are servers of the tests.
//   - virtualservice_*: routes, and what they do besides forwarding.
//   - why_*: the command why and Envoys give the same answer.
//
// # Guarantees
//
//   - Mirrors, rewritten hosts, delegates and routes for some clients alone do what VirtualServices say, and requests
//     with one hash stay with one endpoint: [TestRoutes], [TestMirror], [TestHash]. So do requests of one persistent
//     session, while the endpoint drains too: [TestSessions].
//   - Clients and servers of grpc-go route, split, eject, fail over, authorize and speak mutual TLS as the mesh is
//     configured, and a change fails no call: [TestApplications].
package traffic
