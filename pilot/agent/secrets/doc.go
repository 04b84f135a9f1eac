// Package secrets provides the certificates of a workload, which are signed by a CA or read from files.
//
// A Manager gets a certificate when it starts and renews it after half of its lifetime, so that an outage of the CA
// that is shorter than the other half has no effect. The old certificate is used until it expires. The wall clock
// decides what is due, and is checked every second, because certificates expire by it, and a machine that slept or
// whose clock was set misses timers. The backoff after a failure is measured in elapsed time, independent of the clock.
//
// Files are read again when they change, including when Kubernetes replaces a folder through a symbolic link. If a file
// is incomplete, missing or invalid, its last valid content stays in use.
//
// A Manager owns its state. Run has two goroutines: one requests certificates, one checks the clock and the files. The
// files of each secret are read in a goroutine of their own, so that a mount that hangs delays no other secret. Keys
// are never logged.
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
