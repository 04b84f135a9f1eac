// Package controller keeps the webhook configurations of this server's revision as they should be, so that an API
// server calls the webhooks and trusts their certificate. It touches only objects that are labelled istio.io/rev for
// the revision, those of revision tags among them.
//
//   - wanted.go: what differs from what an object should say, and the patch for it; pure. The caBundle of each webhook
//     is the roots of the server's certificate. Webhooks that validate refuse what they cannot ask about (Fail), once
//     they are known to work.
//   - probe.go: the dry run by which that is known: an object that is invalid is refused, by the webhook itself.
//   - watch.go: what the API server has.
//   - controller.go: the loop. An object is written at most once a second, and less often while somebody undoes it.
//
// A configuration that says Fail stays as it is. So a server that comes back after it was away serves again without any
// write.
//
// Every replica watches, for what it shows in handshakes depends on what API servers trust by now (Observed). Only one
// writes (Lead).
//
// State: a Controller's, under its lock. Run has a goroutine for each of the two kinds beside its own.
package controller
