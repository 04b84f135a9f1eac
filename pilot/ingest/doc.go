// Package ingest turns the objects that the sources deliver into snapshots.
//
// Changes go one way through it:
//
//	Sources -> Throttle -> World: filter -> stages -> credentials -> registries -> snapshot.Builder
//
// The parts are these:
//
//   - Sources are the origins of objects, in order of precedence: mesh files, a directory, the server's own cluster,
//     remote clusters, other control planes. The options and the mesh configuration name them.
//   - merged holds the objects of all sources by key. If several sources have an object, the first source's is in
//     force.
//   - Throttle gathers changes into commits, by namespace. Changes of endpoints are committed at once.
//   - World commits a batch. It hides objects of other revisions and of namespaces that are not selected, puts the mesh
//     configuration and the networks in force, and passes the changes to the stages, the credentials, the registries
//     and the Builder.
//   - The stages derive objects from objects. Package pilot/derive defines them. stage.go runs them with the changed
//     objects, and derived.go merges their output.
//   - The credentials are the usable contents of Secrets and ConfigMaps, or the last good ones: credentials.go.
//   - SecretDemand decides which Secrets and ConfigMaps of a cluster are read: the ones that proxies want and objects
//     name, and the ones that stages look up.
//   - Analyst finds references between objects that lead nowhere, in a goroutine of its own.
//
// # From a source to the Throttle
//
// Each source calls a config.Handler with its changes, which is Sources.take. The World merges them, and Sources passes
// the changes of objects in force to the sink. A server's sink is Throttle.Take. Until a change is committed, it is in
// merged.pending.
//
// The sources that may hold the mesh configuration are first: mesh files, the directory, ConfigMaps of the server's own
// cluster. When each of them has made its first call, configSources.begin makes the sources that the mesh configuration
// names. The sink is first called when all sources have made their first call. So the first commit has everything.
//
// Results of I/O arrive as changes, through a table of pilot/facts. The exception is the roots that proxies trust: the
// World calls Parts.Roots after a change of kinds.Roots. This package does not depend on Envoy or xDS.
//
// State: the objects of a World, guarded by its lock, and fields that only the committing goroutine touches.
// Goroutines: one of the Throttle, which alone calls Commit after the first load, and one for each source in
// Sources.Run. The caller starts Analyst.Run and the Runs of sources. Results that other goroutines read (snapshot,
// objects, findings) are published whole.
//
// # Guarantees
//
//   - If several sources have an object, the first source's is in force: [TestHistoriesOfSources]. Nothing is
//     committed before all sources have answered, including the sources in the mesh configuration: [TestWhenHeard].
//   - Objects of other revisions and of unselected namespaces are hidden, and changes of either apply at once:
//     [TestRevision], [TestDiscoverySelectors].
//   - Of each object it is known whether a newer version is not committed yet, and whether the filter hides it:
//     [TestStored]. Objects that are not read have a reason: [TestWhyUnread].
//   - serviceEntryVisibility applies at once, as do labels of namespaces: [TestServiceEntryVisibility].
//   - With Options.WatchNamespace, no objects of other namespaces than it and the root namespace are requested, and no
//     other gets roots: [pilot/bootstrap.TestWatchNamespace], [pilot/config/crd.TestNamespaces]. The chart grants it no
//     more: [deploy/e2e/kube.TestOneNamespace].
//   - Kinds in Options.Ignored are not requested. That they restrict nothing is a finding: [TestIgnored],
//     [pilot/bootstrap.TestWatchNamespace].
//   - A mesh configuration with an error is replaced by the last one of its layer that was used: [TestMeshLayers],
//     [TestMeshWithUnknownFields], [TestSalvagedMeshStays], [TestMeshWithoutKey]. At a start there is none, and the
//     server does not become ready with the defaults: [pilot/bootstrap.TestUnusableMeshConfigIsNotReady],
//     [pilot/bootstrap.TestUnreadableMeshFileIsRefused]. A missing shared ConfigMap is such an error:
//     [TestMissingSharedMesh].
//   - A mesh file given by a flag takes precedence over the ConfigMap: [pilot/bootstrap.TestMeshConfig].
//   - Networks follow their ConfigMap, labels and names: [TestNetworksFollow], [TestNamesOfGateways].
//   - Derived objects follow their sources, in any batches. A user's own object takes precedence: [TestStages],
//     [TestStagesHistories], [TestGatewayHistories]. A stage runs again when an object that it looked up changes, and
//     at no other time: [TestLookups].
//   - A stage that panics keeps what it derived, affects no other change, and starts again when its input changes:
//     [TestStagePanics]. Its findings are bounded, and are about objects that a user wrote:
//     [TestFindingsOfStagesAreBounded], [TestFindingsOfDerivedObjects].
//   - The throttle commits the last change of each object last, and no change waits beyond its bound:
//     [TestThrottleHistories].
//   - Changes that come together are analysed once, and a Node only when its place changes: [TestAnalysisIsCoalesced].
//   - A write to a kind that no package reads makes no Snapshot: [TestObjectsThatNobodyReadsMakeNoSnapshot].
//   - A Secret that breaks keeps its last good content and is a finding, and a Secret that no object names is not
//     held: [TestCredentials]. Certificates that expire while they are served, names without a server, and missing
//     Secrets are findings: [TestExpiry], [TestUnservedCredentials], [TestMissingCredentials],
//     [TestMissingCredentialsOfRules], [TestLackingCredentials], [deploy/e2e/gatewaytls.TestCluster].
//   - A rule whose keys no server fetches is a finding: [TestKeysThatNobodyFetches].
//   - A finding about an unsupported field has the line of the field: [TestUnsupportedFieldsAreLocated],
//     [TestUnsupportedMeshFieldsAreLocated].
package ingest
