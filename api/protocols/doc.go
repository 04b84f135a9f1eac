// Package protocols says which protocol a port has, by its name, appProtocol and number. The registries and analysis
// share it. It does no I/O.
//
// # Guarantees
//
//   - Each name, appProtocol and well-known port has the protocol that Istio gives it: [TestOfPort].
package protocols
