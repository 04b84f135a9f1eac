// Package secureport assembles the secure port of a server: a CA or signers of Kubernetes, the server's own
// certificate, the authentication of callers, and the service that issues certificates to them.
//
//   - secureport.go: the parts, and the order of the authenticators.
//   - options.go: the operator's options, and which of them exclude each other.
//
// The package only assembles: trustdomain, authenticate, authority, server and ra decide. It runs no goroutine; the
// caller runs the Authority.
//
// # Guarantees
//
//   - Where other systems certify the server and the workloads, the secure port serves callers with their certificates
//     and issues none: [pilot/bootstrap.TestCertifiedByOthers], [deploy/e2e/kube.TestCertifiedByOthers]. The chart
//     mounts the files that it reads: [deploy/charts.TestCertificatesOfOthers].
//   - The options of the operator decide what the port accepts, and options that exclude each other are refused:
//     [TestPeer], [TestOptionsThatDoNotFit].
//   - A token leads to a certificate and to a stream, no other caller gets in, and the CA outlives the server:
//     [pilot/bootstrap.TestSecurePort], [pilot/bootstrap.TestPluggedCA].
package secureport
