// Package safe has guards that all other packages use, so that no input and no bug in one component ends the process.
//
//   - goroutine.go: goroutines and calls whose panic is recovered, named and logged, and goroutines that end together.
//   - fetch.go: fetches URLs that users wrote, only from other hosts, with bounds.
//   - browser.go: detects requests by which a web page in a browser attacks a server of this host.
//   - file.go: reads files without waiting for a writer.
//   - regex.go: bounds the size of the programs of regular expressions that users wrote.
//
// The package has no state. Go and Beside start one goroutine for each call, which ends with the given function. Panics
// are not counted here: the owner of the log handler counts the records that carry a *Panic (see Panic), so that a
// count needs no global variable.
//
// # Guarantees
//
//   - A panic is contained, named, logged and counted, and no client learns its text: [TestGo],
//     [api/rpc.TestPanicsAreContained], [pilot/ports.TestPanicsAreContained], [cmd/logs.TestPanicsAreCounted].
//   - A fetch reaches no address of the own host, of its links or of a metadata service, whatever a name resolves to,
//     also by the operator's proxy: [TestFetch], [TestFetchByProxy].
//   - A regular expression that costs too much to compile is refused: [TestRegexSizeRefuses],
//     [TestRegexSizeIsAnUpperBound].
//   - A web page cannot use a browser of this host to reach a debug page: [TestNotRebound], [TestCrossOrigin].
package safe
