// Package identity names workloads and the peers of connections.
//
// An ID is the SPIFFE ID of a workload in Istio's form. A Peer is the sender of a request: its address, and the ID that
// it proved, with the proof. The package authorizes nothing; package authorize does. It is pure.
//
// # Guarantees
//
//   - An identity that is parsed is printed the same: [TestParse], [FuzzParse].
package identity
