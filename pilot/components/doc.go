// Package components starts the parts of the server in order, runs them and stops them.
//
// A step of the start ends before the next one begins. A Component runs in the background and has findings; one that is
// an Observer is told of each commit. If one fails, all stop, and an error names what has not stopped in time.
//
// State: the names of what runs, under a lock. Each Component has a goroutine.
//
// # Guarantees
//
//   - A component that fails stops the server, whatever waits for it: [TestComponents],
//     [TestComponentFailsWhileAnotherWaits]. One that does not end is left behind and named:
//     [TestComponentsThatDoNotEnd].
package components
