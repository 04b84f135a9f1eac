// Package xds is the DiscoveryServer: it serves the aggregated discovery service over state-of-the-world and delta
// streams.
//
// What a proxy is sent comes from a Translator; this package decides who is sent what, when and in which order, and
// never looks inside a resource. It listens on no port, reads no clock in its protocol, and decides nothing about
// identity: whoever may open a stream was decided before.
//
// Layers, each of which knows only those above it:
//
//   - session: the protocol of one stream. Requests and snapshots go in, responses come out. No goroutine, clock or
//     socket; tested by transcripts.
//   - conn: one stream. Its owner, the goroutine of the gRPC handler, alone touches the session; a reader goroutine
//     feeds it requests. The owner sends a response itself if the client has acknowledged all before it, or almost:
//     then there is room. For any other response a goroutine sits in Send. The owner listens to everything else while
//     it waits for a translation slot, and never waits for the peer, unless that has acknowledged what it did not
//     read: then the watchdog ends the stream.
//   - subscriberGroup: the streams that are sent the same. It checks once whether a snapshot has anything for them, in
//     a goroutine that ends with the answer.
//   - Server: the set of streams, the newest snapshot, the slots that bound translation, the metrics. Publish never
//     waits for a stream.
//
// Requests are decoded by hand (request.go), responses are spliced of shared blocks (encoder.go). Streams share what
// they hold: lists of names (interner.go), the versions that they resume with (initial.go), the Sets that they were
// sent, and the differences of those. A client that takes virtual hosts by themselves is sent them apart from their
// route configurations (hosts.go).
//
// What a client rejects is not sent again while it is the same. Of a response of several resources only one may be bad:
// they are bisected until the bad one is alone (watch.go).
//
// Two hooks stand before a stream's first answer: Options.Connections may take its time, in a goroutine of its own, or
// refuse the stream, and Options.Known makes it wait a little for news of its workload. Neither holds up other streams,
// and the session knows of neither.
//
// A pass is what one snapshot makes a stream send: types in their order, then removals. A stream finishes its pass
// before it takes the newest snapshot, so the order on the wire always belongs to one state of the world, and a slow
// stream skips the states in between.
//
// In what kinds of clients differ is a profile, chosen at the stream's first request (profile.go). A client whose node
// has GENERATOR=api is sent objects of configuration instead of a proxy's: every type is answered, as a whole, and only
// peers that Options names are served. What a stream waits for when it starts, resumes or leaves is in deadlines.go.
package xds
