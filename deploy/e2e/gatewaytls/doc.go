// Package gatewaytls tests gateways that terminate TLS, and upstream TLS. A real Envoy gets the certificates of Secrets
// from the control plane, over an authenticated stream.
//
// # Guarantees
//
//   - A gateway shows each host its own certificate. The rotation of a Secret fails no request, and a broken Secret
//     affects no other host, from files and from an API server: [TestModes], [TestCluster].
//   - Calls by HTTP/3 find the certificates, routes and policies of calls by HTTP/2: [TestHTTP3]. A server of a
//     Gateway enforces its versions and cipher suites, and certificates by hash and by name: [TestSettings]. With
//     COMPLIANCE_POLICY it takes no connection that the policy forbids: [TestCompliance].
package gatewaytls
