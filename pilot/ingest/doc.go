// Package ingest turns what the sources bring into snapshots.
//
// Changes go one way through it:
//
//	Sources -> Throttle -> World: filter -> stages -> credentials -> registries -> snapshot.Builder
//
// The parts are these:
//
//   - Sources are the places that changes come from, merged in their order of precedence: mesh files, a directory, the
//     own cluster, remote clusters, other control planes. The options name them, and the mesh configuration does.
//   - Throttle gathers changes into commits, by namespace. Endpoints do not wait.
//   - World commits a batch. It leaves out objects of other revisions and of namespaces that are not selected, puts the
//     mesh configuration and the networks in force, and feeds the stages, the credentials, the registries and the
//     Builder.
//   - The stages derive objects from objects. What a stage is, and each stage, is in pilot/derive; stage.go runs them.
//   - The credentials are what of Secrets and ConfigMaps is served, and the last good of each: credentials.go.
//   - SecretDemand decides which Secrets and ConfigMaps of a cluster are read: what proxies want and objects name.
//   - Analyst finds references between objects that lead nowhere, beside all that.
//
// # From a source to the Throttle
//
// Each source calls a config.Handler with what changed. Handlers are made by aggregate.Source.From: it merges the
// changes of its sources by precedence, and calls its sink with what changed in the result. There are two of them, one
// behind the other:
//
//  1. Sources.first merges the places that the mesh configuration may be in: mesh files, the directory, ConfigMaps of
//     the own cluster. Its sink is configSources.after. That looks at the mesh configuration, makes the sources that it
//     names, and hands the changes on.
//  2. Sources.Source merges these changes, as the source "mesh configuration", with all other sources: services,
//     remote clusters, and those that configSources made. Its sink is the one that NewSources got: a server's takes the
//     first call as its first commit, and adds later ones to the Throttle.
//
// Each of the two calls its sink for the first time when all its sources have made a first call. So the sources that
// the mesh configuration names are known before anything is committed, and the first commit has everything.
//
// Answers of I/O come as changes, through a table of pilot/facts. Nothing here knows Envoy or xDS.
//
// State: a World's objects, under its lock, and what only the committing goroutine touches. Goroutines: the Throttle's
// one, which alone calls commit once it is made, and one for each source in Sources.Run. Analyst.Run and the Runs of
// sources are started by the caller. What others read of a World (snapshot, objects, findings) is published whole.
package ingest
