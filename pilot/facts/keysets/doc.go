// Package keysets is the provider of facts that fetches the public keys of token issuers, from where they are or from
// where the issuer's own document says they are.
//
// What it fetches is what users wrote, so every connection goes through a safe.Fetcher: to no address of this host, of
// bounded size, for a bounded time. Nothing of a response is kept but public keys, and no error has any of it.
//
//   - keysets.go: the provider.
//   - fetcher.go: the Fetcher of all URLs that users write.
//
// Keys are fetched again after PILOT_JWT_PUB_KEY_REFRESH_INTERVAL. Keys that cannot be fetched stay as they were, for a
// week; then there are none. Nor are there keys beyond the bounds of what one namespace may need. State and goroutines
// are those of a Poller (package poll).
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
