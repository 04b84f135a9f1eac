// Package bundles fetches the SPIFFE bundles of other trust domains from the URLs in the mesh configuration. They are
// facts that are not in the Snapshot: citadel/trustdomain uses them.
//
//   - bundles.go: the provider. It fetches a bundle every 5 minutes. If that fails, the last good bundle stays in force
//     for a week.
//   - parse.go: the roots in a bundle.
//
// State and goroutines are those of a Poller (package poll).
package bundles
