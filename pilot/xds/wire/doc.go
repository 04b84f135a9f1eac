// Package wire is requests and responses as bytes.
//
// A Request is decoded by hand, for most of what clients send is what other clients sent before: lists of names and the
// versions that clients resume with are looked up by an Interner, and shared, without making a string of any. Request's
// Unmarshal is the one way in. A Response is spliced by an Encoder, of blocks of encoded resources that all streams
// share; Codec hands both to gRPC as they are.
//
// The package knows nothing of streams, snapshots and subscriptions, and runs no goroutine.
//
// # Guarantees
//
//   - A spliced response has the bytes that protobuf would encode: [TestResponseEqualsProtobufs]. A response with
//     secrets is not cached: [TestSecretsAreNotCached].
//   - Streams share lists of names, versions and blocks of responses: [TestRequestsShareNamesAndVersions],
//     [TestBlocksAreShared].
package wire
