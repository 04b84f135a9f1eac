// Package safe holds the few guards that every other package goes through, so that no input and no bug of one part ends
// the process.
//
//   - goroutine.go: goroutines and calls whose panic is contained, named and logged, and goroutines that end together.
//   - fetch.go: URLs that users write, fetched from other hosts only, with bounds.
//   - browser.go: requests by which a web page in a browser attacks a server of this host.
//   - file.go: files that are read without waiting for a writer.
//   - regex.go: what regular expressions that users write compile to, with a bound on the size of the program.
//
// The package has no state. Go and Beside start one goroutine for each call, which ends with the function that it was
// given. A panic is not counted here: the owner of the log handler counts the records that carry a *Panic (see Panic),
// so that a count never needs a global.
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
