// Package bundles fetches the SPIFFE bundles of other trust domains, by URLs in the mesh configuration. They are facts
// that no snapshot has: citadel/trustdomain asks for them.
//
//   - bundles.go: the provider. A bundle is fetched again every 5 minutes. If that fails, the last good one stays for a
//     week.
//   - parse.go: the roots in a bundle.
//
// State and goroutines are those of a Poller (package poll).
package bundles
