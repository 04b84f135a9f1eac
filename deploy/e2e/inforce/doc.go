// Package inforce tests with twenty real Envoys, two replicas of the control plane and a real API server that an object
// is in force when the command wait and the conditions say so: after that, requests through all proxies meet the new
// version only.
//
// It has no code of its own besides its tests, which run as an ordinary user inside the namespaces of package pods. The
// sidecars use both protocols and connect to either replica, and the gateways have agents and certificates of Secrets.
// With -short, all changes together meet 10,000 requests, and otherwise each change does.
//
// # Guarantees
//
//   - After wait ends with 0, no request meets an older version of routes, listeners, clusters, policies, telemetry and
//     certificates of gateways, nor anything of a deleted object: [TestInForce].
//   - A proxy that is stopped, or that rejects the change, keeps wait and the conditions from saying that the object is
//     in force. They name the proxy, since when it is behind, and what Envoy says: [TestInForce/held-back],
//     [TestInForce/rejected].
//   - While a replica is dead and its proxies are connected to none, wait never ends with 0. It is right again after
//     they have connected: [TestInForce/replica-dies].
//   - While a proxy is stopped, wait never ends with 0, even if all replicas start again meanwhile:
//     [TestInForce/all-replicas-die].
package inforce
