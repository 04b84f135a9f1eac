// Package wire encodes and decodes requests and responses.
//
// A Request is decoded by hand, because most requests repeat what other clients sent: an Interner looks up lists of
// names and resumed versions without making strings. Request.Unmarshal is the only entry. An Encoder splices a Response
// from blocks of encoded resources that all streams share. Codec passes both to gRPC.
//
// The package does not depend on streams, snapshots or subscriptions, and runs no goroutine.
//
// # Guarantees
//
//   - A spliced response has the bytes that protobuf would encode: [TestResponseEqualsProtobufs]. A response with
//     secrets is not cached: [TestSecretsAreNotCached].
//   - Streams share lists of names, versions and blocks of responses: [TestRequestsShareNamesAndVersions],
//     [TestCohortsShareVersions], [TestBlocksAreShared]. Blocks are shared as long as a response in flight has them,
//     however large they are: [TestBlocksInFlight].
package wire
