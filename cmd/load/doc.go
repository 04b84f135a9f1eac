// Package load simulates a fleet of Envoys: each connects to a control plane as Envoy does, subscribes and acknowledges
// in Envoy's order, lists the extensions that a real one lists, takes virtual hosts by themselves if an option asks for
// it (VHDS), names what it holds when it connects again, and counts what it is sent. It decodes no more of that than
// the names and versions it needs to go on.
//
// A simulated Envoy accepts whatever it is sent, proxies no traffic, keeps no configuration but names and versions, and
// presents no certificate or token but what Options bring. It knows nothing of this project's server: any control plane
// that speaks ADS can be its peer.
//
// A Fleet is owned by whoever started it, who calls Stop; it runs one goroutine a proxy, and gRPC its own. Each proxy's
// state is touched by its goroutine alone. All methods of Fleet and Track may be called from any goroutine.
//
// # Guarantees
//
//   - A client that resumes is not measured as new, and a version that comes back is a push of its own:
//     [TestSpreadOfPushes], [TestResumedAnswersAreNotCounted].
package load
