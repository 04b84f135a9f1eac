// Package secrets keeps the certificates of a workload: those that a CA signs for it, and those of files.
//
// A Manager has a certificate signed when it starts and again after half of its life, so that an outage of the CA
// shorter than the other half harms nobody. The old certificate is handed out until it ends. What is due is decided by
// the wall clock, looked at each second: a certificate ends by it, and a machine that slept or whose clock was set has
// missed timers. How long to wait after a failure goes by time that has passed, whatever the clock says.
//
// Files are read again when they change: also when a folder is swapped by a symbolic link, as Kubernetes does. One that
// is torn, missing or unusable leaves what was read before.
//
// A Manager owns its state. Run has two goroutines: one asks the CA, one looks at the clock. While the files of a
// secret are looked at, they have one of their own, so that a mount that hangs delays no other secret. Keys are never
// logged.
//
// # Guarantees
//
//   - A certificate is renewed at half of its life by the wall clock, also when that was set or the machine slept:
//     [TestRenewal]. While the CA is away the old certificate is handed out until it ends, and requests to the CA back
//     off: [TestOutage], [TestPauses]. A certificate that does not fit the key, or has ended, is refused:
//     [TestUnusableAnswers].
//   - One certificate is signed at a time, for any number of callers: [TestCertificate]. Roots that the control plane
//     adds are trusted beside the CA's: [TestRoots].
//   - Files that are torn or do not fit leave the last good ones in force: [TestFiles]. A file that hangs delays
//     nothing else: [TestFileHangs]. Files that no stream follows make room for others: [TestManyFiles].
//   - The certificate's own files fit each other at each moment, and a full disk leaves them whole: [TestOutput]. A
//     group may read the key where all files belong to that group: [TestOutputOfAGroup].
package secrets
