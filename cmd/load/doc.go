// Package load simulates a fleet of Envoys. Each connects to a control plane, subscribes and acknowledges in the order
// that Envoy does, and lists the extensions that a real Envoy lists. An option makes it ask for virtual hosts
// separately (VHDS). When it connects again, it names the resources that it holds. It counts what it receives, and
// decodes only the names and versions that it needs to go on.
//
// A simulated Envoy accepts every response, proxies no traffic, keeps no configuration except names and versions, and
// presents no certificate or token except those of Options. It knows nothing of this project's server, so any control
// plane that speaks ADS can be its peer.
//
// The caller of Start owns the Fleet and must call Stop. A Fleet runs one goroutine for each proxy, and gRPC runs its
// own. The state of a proxy is owned by its goroutine. All methods of Fleet and Track may be called from any goroutine.
//
// # Guarantees
//
//   - A client that resumes is not measured as new, and a version that comes back is a push of its own:
//     [TestSpreadOfPushes], [TestResumedAnswersAreNotCounted].
package load
