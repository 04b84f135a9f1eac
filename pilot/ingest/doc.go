// Package ingest turns what the sources bring into snapshots.
//
// Changes go one way through it:
//
//	Sources -> Throttle -> World: filter -> stages -> credentials -> registries -> snapshot.Builder
//
// The parts are these:
//
//   - Sources are the places that changes come from, in their order of precedence: mesh files, a directory, the own
//     cluster, remote clusters, other control planes. The options name them, and the mesh configuration does.
//   - merged is the objects of a World by key, of all sources: if several have one, the object of the first is in
//     force.
//   - Throttle gathers changes into commits, by namespace. Endpoints do not wait.
//   - World commits a batch. It leaves out objects of other revisions and of namespaces that are not selected, puts the
//     mesh configuration and the networks in force, and feeds the stages, the credentials, the registries and the
//     Builder.
//   - The stages derive objects from objects. What a stage is, and each stage, is in pilot/derive. stage.go runs them
//     with what has changed; derived.go has what they have made.
//   - The credentials are what of Secrets and ConfigMaps is served, and the last good of each: credentials.go.
//   - SecretDemand decides which Secrets and ConfigMaps of a cluster are read: what proxies want and objects name, and
//     what stages look up.
//   - Analyst finds references between objects that lead nowhere, beside all that.
//
// # From a source to the Throttle
//
// Each source calls a config.Handler with its changes, which is Sources.take. The World merges them, and Sources call
// the sink with the changes of objects in force. A server's sink is Throttle.Take. Until a change is committed, it is
// in merged.pending.
//
// The sources that the mesh configuration may come from are the first: mesh files, the directory, ConfigMaps of the own
// cluster. When each of them was heard, configSources.begin makes the sources that the mesh configuration names. The
// sink is called for the first time when all sources were heard. So the first commit has everything.
//
// Answers of I/O come as changes, through a table of pilot/facts. Only the roots that proxies trust are asked for, by
// Parts.Roots: a change says that they may be others. Nothing here knows Envoy or xDS.
//
// State: a World's objects, under its lock, and what only the committing goroutine touches. Goroutines: the Throttle's
// one, which alone calls commit once it is made, and one for each source in Sources.Run. Analyst.Run and the Runs of
// sources are started by the caller. What others read of a World (snapshot, objects, findings) is published whole.
package ingest
