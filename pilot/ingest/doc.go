// Package ingest turns what the sources bring into snapshots.
//
// Changes go one way through it:
//
//	Sources -> Throttle -> World: filter -> stages -> registries -> snapshot.Builder
//
// The parts are these:
//
//   - Sources are the places that changes come from, merged in their order of precedence: mesh files, a directory, the
//     own cluster, remote clusters, other control planes. The options name them, and the mesh configuration does.
//   - Throttle gathers changes into commits, by namespace. Endpoints do not wait.
//   - World commits a batch. It leaves out objects of other revisions and of namespaces that are not selected, puts the
//     mesh configuration and the networks in force, and feeds the stages, the registries and the Builder.
//   - Stage derives objects from objects. There is none yet; Gateway API and Ingress will be some.
//   - Analyst finds references between objects that lead nowhere, beside all that.
//
// Answers of I/O come as changes, through a table of pilot/facts. Nothing here knows Envoy or xDS.
//
// State: a World's objects, under its lock, and what only the committing goroutine touches. Goroutines: the Throttle's
// one, which alone calls commit once it is made, and one for each source in Sources.Run. Analyst.Run and the Runs of
// sources are started by the caller. What others read of a World (snapshot, objects, findings) is published whole.
package ingest
