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
//
// # Guarantees
//
//   - If several sources have an object, the first source's is in force: [TestHistoriesOfSources]. Nothing is
//     committed before all sources have answered, including the sources in the mesh configuration: [TestWhenHeard].
//   - Objects of other revisions and of unselected namespaces are hidden, and changes of either apply at once:
//     [TestRevision], [TestDiscoverySelectors].
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
//     [TestMissingCredentialsOfRules], [deploy/e2e/gatewaytls.TestCluster].
//   - A rule whose keys no server fetches is a finding: [TestKeysThatNobodyFetches].
//   - A finding about an unsupported field has the line of the field: [TestUnsupportedFieldsAreLocated],
//     [TestUnsupportedMeshFieldsAreLocated].
package ingest
