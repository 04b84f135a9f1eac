// Package keysets is the provider of facts that fetches the public keys of token issuers, from a URL or from where the
// issuer's discovery document says they are.
//
// Users write the URLs, so every connection goes through a safe.Fetcher: no address of this host, a bounded size, a
// bounded time. Only public keys are kept of a response, and errors contain no part of it.
//
//   - keysets.go: the provider.
//   - fetcher.go: the Fetcher for URLs that users write.
//
// Keys are fetched again after PILOT_JWT_PUB_KEY_REFRESH_INTERVAL. While fetches fail, the last good keys stay in force
// for a week. Keys over the limits of a namespace are missing. State and goroutines are those of a Poller (package
// poll).
//
// # Guarantees
//
//   - A server of keys cannot make a fetch endless, reach a forbidden address, or make anything but public keys
//     appear: [TestHostileServers].
//   - Key sets of a namespace beyond its bounds are missing, so no token is accepted by them, and a finding says so:
//     [TestBounds], [pilot/facts/poll.TestBoundsOfNamespaces].
//   - Keys are fetched again, soon after a failure too. While their server is away the last good keys are in force,
//     for a week: [TestKeysOverTime].
package keysets
