// Package poll is what providers of facts have in common that ask for each name by itself.
//
// A name is asked for at once when it is new, then again and again, and after a failure sooner, but less often while it
// goes on failing. A name that fails keeps its last good answer, for as long as the options say. One that is let go of
// and wanted again within a minute has its last answer, and is not asked for out of turn. Namespaces take turns, and
// one has at most as many questions open as are left for the others. What one namespace may need is bounded: a name
// beyond that, or an answer, is not there for anybody who needs it.
//
// State: the Poller's names, under its lock. Goroutines: one, in Run, and one for each of the few questions that are
// open at a time; Run waits for them. Other methods may be called from any goroutine.
//
// # Guarantees
//
//   - A namespace whose servers do not answer delays the facts of no other namespace: [TestOneNamespaceDelaysNoOther].
package poll
