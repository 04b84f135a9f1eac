// Package identity names workloads, and who is at the other end of a connection.
//
// An ID is the SPIFFE ID of a workload, as Istio writes it. A Peer is whoever sent a request: its address, and the ID
// that it proved to have, with how. The package decides nothing: package authorize does. It is pure.
//
// # Guarantees
//
//   - An identity that is parsed is printed the same: [TestParse], [FuzzParse].
package identity
