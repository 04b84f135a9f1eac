// Package rotation decides when certificates are renewed, and how the root of a self-signed CA is replaced without a
// failing handshake. Its functions are pure: time is an argument.
//
// A root is replaced in steps. Each step is one write of the whole State, so a crash between two steps loses nothing,
// and every replica that reads the State signs with a root that all workloads trust.
//
//	one       one root signs and is trusted.
//	announced the next root is trusted as well, but signs nothing yet. This lasts as long as the longest certificate:
//	          then every workload with a valid certificate has received the next root with it.
//	replaced  the next root signs, and the old one is still trusted, for as long again: then no certificate that the old
//	          root signed is valid any more.
//
// # Guarantees
//
//   - While a root is replaced, any two workloads with valid certificates trust each other: [TestNoHandshakeFails],
//     [TestFiftyAgents], [TestOpenSSL]. Between real Envoys, at 200 connections a second, no handshake fails:
//     [deploy/e2e/mtls.TestRootIsReplaced].
//   - Renewal follows the wall clock: [TestRenewal].
package rotation
