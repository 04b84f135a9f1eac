// Package check checks a cluster before an installation, an installed control plane, a running server, and a single
// proxy. It reads the debug pages and metrics of a server and the API server of a cluster, and writes to neither.
//
// A check is a function that adds Results to a Report, in groups. A question that gets no answer is a Result too, so a
// check without a Result has found nothing wrong. A Result that is wrong says how to correct it, if possible as a
// command.
//
// The package holds no state and starts no goroutines.
//
// # Guarantees
//
//   - Faults of a server, a cluster or a proxy are found, and each such line has a command that corrects the fault or
//     shows more: [TestRunning], [TestInstalled], [TestInstallable], [TestProxyOf], [TestPod], [TestRejections]. In a
//     cluster where the charts are installed, that command corrects it: [deploy/e2e/check.TestCheck].
package check
