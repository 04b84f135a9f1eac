// Package check finds out whether a control plane may be installed in a cluster, whether one that runs is well, and
// how one proxy stands. It reads a running server, through its debug pages and metrics, and a cluster, through its API
// server, and writes to neither.
//
// A check is a function that adds Results to a Report, in groups. What could not be asked is a Result too: a check that
// says nothing has found nothing wrong. A Result that is wrong says what mends it, where possible as a command.
//
// The package holds no state and starts no goroutines.
//
// # Guarantees
//
//   - Faults of a server, a cluster or a proxy are found, and each such line has a command that corrects the fault or
//     shows more: [TestRunning], [TestInstalled], [TestInstallable], [TestProxyOf], [TestPod], [TestRejections]. In a
//     cluster where the charts are installed, that command corrects it: [deploy/e2e/check.TestCheck].
package check
