// Package xds is the DiscoveryServer: it serves the aggregated discovery service over state-of-the-world and delta
// streams.
//
// What a proxy is sent comes from a Translator; this package decides who is sent what, when and in which order, and
// never looks inside a resource. It listens on no port. Who a peer is comes from Options.Authenticate, and what it may
// do from package authorize.
//
// Each layer knows only those above it. The first three are packages, and so is api, which stands beside them;
// deploy/house keeps them apart:
//
//   - diff: what brings a client from one Union of resources to another, once for all streams that need the same.
//   - wire: requests and responses as bytes. Lists of names and versions that clients repeat are shared.
//   - session: the protocol of one stream. Requests and snapshots go in, responses come out.
//   - conn: one stream. Its owner, the goroutine of the gRPC handler, alone touches the session; a reader goroutine
//     feeds it requests. The owner sends a response itself if the client has acknowledged all before it, or almost:
//     then there is room. For any other response a goroutine sits in Send. The owner listens to everything else while
//     it waits for a translation slot, and does not wait for the peer. The watchdog ends the stream of a client that
//     acknowledges data and does not read it. What a stream waits for when it starts, resumes or leaves is in
//     deadlines.go. How kinds of clients differ is in profile.go.
//   - subscriberGroup: the streams that are sent the same. It checks once whether a snapshot has anything for them, in
//     a goroutine that ends with the answer.
//   - Server: the set of streams, the newest snapshot, the slots that bound translation, the metrics. Publish never
//     waits for a stream.
//
// Two hooks stand before a stream's first answer: Options.Connections may take its time, in a goroutine of its own, or
// refuse the stream, and World.WorkloadKnown makes it wait a little for news of its workload. Neither holds up other
// streams, and the session knows of neither.
//
// Secrets are for peers that proved who they are. Names of other namespaces are taken from a peer's requests before the
// session sees them, but for what the Snapshot shares with it. Whether its service account may list Secrets is known
// later: until it is, the session is guarded, and sends none but what is shared with that account or with all. Both are
// in secrets.go. A subscription to a secret also has the server read it: World.WantSecrets is told, ingest.SecretDemand
// decides, config/crd reads, and the Secret comes back as a change.
//
// A client whose node has GENERATOR=api is sent objects of configuration, which Options.Objects makes, in place of a
// proxy's. Every type is answered as a whole, and only peers that Options.Authorizer allows are served.
package xds
