// Package poll implements providers of facts that ask for each name separately.
//
// A new name is asked for at once, and then periodically. After a failure it is asked for sooner, with backoff. A name
// that fails keeps its last good answer, for as long as the options say. A name that is wanted again within a minute
// has its last answer, and is not asked for out of turn. Namespaces take turns, and one may have at most as many
// questions in progress as are left for the others. What one namespace may need is limited: a name over the limits is
// missing for all objects that need it.
//
// State: the Poller's names, under its lock. Goroutines: one, in Run, and one for each question in progress, whose
// number is limited; Run waits for them. Other methods may be called from any goroutine.
//
// # Guarantees
//
//   - A namespace whose servers do not answer delays the facts of no other namespace: [TestOneNamespaceDelaysNoOther].
package poll
