// Package authorize decides what a peer may do: open a stream as a proxy, read configuration or debug pages, register a
// workload, receive a secret.
//
// A server authenticates a peer, asks an Authorizer with the identity.Peer, and turns a Denied into the refusal of its
// protocol. Everything that is not allowed is denied. The package is pure. One question needs I/O: whether a service
// account may list Secrets. Package access asks the API server.
//
// AuthorizationPolicies are not enforced here. They govern calls between workloads, and are the feature authz.
//
// # Guarantees
//
//   - A request that is not allowed is denied, for any peer. A plaintext peer has no ID, so it gets no secret:
//     [TestWhatPeersMayDo].
package authorize
