// Package xds is the DiscoveryServer: it serves the aggregated discovery service over state-of-the-world and delta streams, and holds the throttle that
// decides when changes become a snapshot.
//
// What a proxy is sent comes from a Translator; this package decides who is sent what, when and in which order, and never looks inside a resource. It
// listens on no port, reads no clock in its protocol, and decides nothing about identity: whoever may open a stream was decided before.
//
// Layers, each of which knows only those above it:
//
//   - session: the protocol of one stream. Requests and snapshots go in, responses come out. No goroutine, clock or socket; tested by transcripts.
//   - conn: one stream. Its owner, the goroutine of the gRPC handler, alone touches the session; a reader goroutine feeds it requests. A
//     response to a client that has acknowledged all before, or all but a little, is sent by the owner, for it has room; in the Send of any other sits a goroutine of its own. The owner never
//     waits for a translation slot without listening to everything else as well, nor for the peer, unless that has said it read what it had not: then the watchdog ends it.
//   - audience: the streams that are sent the same. It finds out once whether a snapshot has anything for them, in a goroutine that ends with the answer.
//   - Server: the set of streams, the newest snapshot, the slots that bound translation, the metrics. Publish never waits for a stream.
//   - Throttle: gathers changes into commits. One goroutine, which calls commit; its rules are a pure core.
//
// Requests are decoded by hand (request.go), responses are spliced of shared blocks (encoder.go).
// What streams hold they share: lists of names (lists.go), what they bring of earlier streams (declared.go), the Sets that
// they were sent, and the differences of those. A client that takes virtual hosts by themselves is sent them apart from their route configurations (hosts.go).
//
// What a client rejects is not sent again while it is the same. Of a response of several resources only one may be bad: they are sent
// again by halves until the bad one is alone (watch.go).
//
// Two hooks stand before a stream's first answer: Options.Connections may take its time, in a goroutine of its own, or refuse the stream, and Options.Known makes it wait a little for news of its
// workload. Neither holds up other streams, and the session knows of neither.
//
// A pass is what one snapshot makes a stream send: types in their order, then what is to be removed. A stream finishes its pass before it takes the
// newest snapshot, so the order on the wire always belongs to one state of the world, and a slow stream skips the states in between.
//
// A client whose node says GENERATOR=api is sent objects of configuration instead of a proxy's: every type is answered, as a whole, and only peers that
// Options names are served (objects.go).
package xds
