// Package facts is how answers of I/O reach the way from changes to snapshots, which itself does none.
//
// A consumer names the facts that it needs. A Provider asks for them beside that way, in goroutines of its own, and
// hands each answer on as a change, frozen like an object. The Table keeps the answers that are in force, so what is
// made of changes stays a function of the changes.
//
// A fact that is not there says so: Get returns false. Its consumer must then do what is safe without the fact, which
// for security means to deny. A Provider that fails keeps the last good answer, and Failing returns why it is old.
//
// The one Provider today is dns, which resolves names of hosts; ingest turns its answers into networks. Keys of token
// issuers (JWKS), and the Secrets and ConfigMaps that a listener names, will be a Provider each, with a kind of their own
// for the changes. What is still missing for them is a table of facts in the Snapshot, which features can look up.
//
// A Table belongs to the goroutine that commits. It runs no goroutine.
package facts
