// Package authorize decides what a peer may do: open a stream as a proxy, read configuration or debug pages, register a
// workload, receive a secret.
//
// Whoever serves a peer asks here, with the identity.Peer that it authenticated, and turns a Denied into its
// protocol's own refusal. What is not allowed is denied. The package is pure. One question needs I/O: whether a
// service account may list Secrets, which package access asks the API server.
//
// AuthorizationPolicies are another thing: those are about calls between workloads, and are the feature authz.
//
// # Guarantees
//
//   - A request that is not allowed is denied, for any peer. A plaintext peer has no ID, so it gets no secret:
//     [TestWhatPeersMayDo].
package authorize
