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
package secrets
