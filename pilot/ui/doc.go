// Package ui is the live page of the server at /ui: the mesh, the connected proxies, the last pushes, the objects and
// whether each is in force, the findings, the resources of a proxy, and the last versions of an object.
//
// The page is a few files of HTML, CSS and JavaScript that are part of the program. It loads nothing from elsewhere and
// runs only its own script: the Content-Security-Policy forbids everything else. It polls JSON below /ui/api with
// conditional requests, once a second for the visible sections, and only while the page is visible.
//
// The cost of viewers is bounded. A section, such as the rows of all proxies, is built on demand for all viewers, and
// not again before 150 times its cost has passed, so that all sections of a view take less than a twentieth of a
// processor. Equal pages of rows are encoded once. Without viewers nothing runs, and all sections are dropped some
// minutes after the last request. The pages of single objects, of which the last 16 are kept, share the time of one
// section.
//
// The list of objects says what package progress knows of the proxies of this replica. The page of one object asks all
// replicas.
//
// What waits for a replica that does not answer is built in the background, and the page shows the last one meanwhile.
//
// Proxies that other replicas serve are listed with the replica's name. Their resources are on the page of that
// replica.
//
// debug.API.Guard decides who may see the page. It cannot change anything.
//
// # Guarantees
//
//   - The page loads and runs nothing but its own files, and makes no HTML of text: [TestPolicy].
//   - All viewers together cost one collection, rare enough to take less than a twentieth of a processor, which is
//     dropped when they leave: [TestOneMakingForAll], [TestCostIsShared], [TestObjectsShareTime]. Answers have a
//     bounded number of rows: [TestPaging], [TestAnswers].
//   - A replica that does not answer holds up no page after the first: [TestSlowReplicas].
//   - Its content can be reached by keys and read in both themes: [deploy/ui.TestPage] (make ui).
//   - In the picture of the mesh, no edge crosses a box: [deploy/ui.TestEdges], [deploy/ui.TestEdgesOfSamples]
//     (make ui).
package ui
