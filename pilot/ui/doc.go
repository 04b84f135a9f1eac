// Package ui is the live page of the server at /ui: the mesh, the connected proxies, the last pushes, the objects with
// how many proxies have taken each, what is wrong, and what a proxy was sent.
//
// The page is a few files of HTML, CSS and JavaScript that are part of the program. It loads nothing from elsewhere and
// runs no script but its own: the Content-Security-Policy allows nothing else. It asks for JSON below /ui/api by
// conditional requests, once a second for what it shows, and not while nobody looks at it.
//
// What viewers cost is bounded. A section, such as the rows of all proxies, is made when somebody asks for it, for all
// viewers at once, and not again before 150 times what it cost has passed, so that all that a view shows takes less
// than a twentieth of a processor. A page of rows is encoded once for all who ask for the same. Without viewers nothing
// runs, and what was made is dropped some minutes after the last.
//
// Proxies that other replicas serve are listed with the replica's name. What those proxies were sent is on the page of
// their replica.
//
// Who may see it is decided by debug.API.Guard. Nothing can be changed here.
//
// # Guarantees
//
//   - The page loads and runs nothing but its own files, and makes no HTML of text: [TestPolicy].
//   - All viewers together cost one collection, rare enough to take a fiftieth of a processor, which is dropped when
//     they leave: [TestOneMakingForAll], [TestCostIsShared]. Answers have a bounded number of rows: [TestPaging],
//     [TestAnswers].
//   - Its content can be reached by keys and read in both themes: [deploy/ui.TestPage] (make ui).
package ui
