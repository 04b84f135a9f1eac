// Package translate makes Envoy's configuration from a Snapshot: pure functions from (Snapshot, cohort) to Sets of
// resources.
//
// Translator is the entry point. Each type of resources is a folder: clusters are made in cds, their endpoints in eds,
// listeners in lds, route configurations and virtual hosts in rds, secrets in sds, name tables in nds, roots to trust
// in pcds. A table of the Translator has a line for each. Package grpc makes the resources for applications that use
// xDS without a proxy.
//
// In each folder, generators read a Snapshot (package view) and make keys. A builder makes each resource from one
// comparable key, which holds everything that the resource depends on. An envoy.Memo stores the resource under that
// key, so the key also explains the bytes of the resource. No key holds a Snapshot. Builders call the hooks of features
// (package hooks). Package engine caches the Sets, and regenerates the partitions that a Snapshot made dirty.
//
// None of these packages runs a goroutine. The first caller that needs a Set generates it, and the others wait.
//
// # A new type
//
// It needs a line in envoy/types.go, a folder, a line in makers (translator.go), one in the layers of deploy/house, and
// the Go type of the message. If no module of go.mod has that, as for name tables, it is written in the wire format. A
// Set that depends on facts, on credentials, or on endpoints that make no host dirty needs a stale function of its own,
// because engine.IfHosts ignores them. The endpoints of a headless service make its host dirty (scope).
//
// # Guarantees
//
//   - Proxies are sent what the real istiod sends them, leaf by leaf: [TestReference]. Intended differences, and
//     resources that are not served yet, are two lists in differences_test.go, with the number of leaves. Calls lead to
//     the same hosts, routes, clusters and endpoints by istiod's resources and by these: [TestCalls]. The same holds
//     with two clusters and with several networks: [TestTwoClusters], [TestNetworks], for name tables: [TestNameTable],
//     and for applications with gRPC as far as gRPC reads it: [TestGRPC]. A condition that a version of gRPC does not
//     evaluate as an Envoy does opens nothing: [TestGRPCPolicies], [TestGRPCClaims].
//   - Real Envoys accept the resources of the reference, and of random changes to objects that validation accepts:
//     [TestEnvoysTakeTheReference], [TestEnvoysTakeWhatIsAccepted], [TestResourcesAreValidAndClosed].
//   - All proxies share one Set of the roots that they trust, generated when the roots change: [TestRoots].
//   - Tunnels, PROXY headers, idle timeouts, the client's protocol and error codes of policies work for real calls, and
//     so does the mesh's default policy: [deploy/e2e/traffic.TestConnections], [deploy/e2e/traffic.TestRequests],
//     [deploy/e2e/traffic.TestDefaultPolicy]. So does name resolution by the proxy:
//     [deploy/e2e/traffic.TestServiceEntry], [deploy/e2e/traffic.TestAllowAny],
//     [deploy/e2e/traffic.TestSocketComesBack].
//   - A proxy's own certificates and roots in files are in force for mutual TLS within the mesh, in both directions. A
//     certificate without its key leaves the mesh's in force: [TestClientFiles], [TestServerFiles].
//   - Adding and removing a cluster leaves the same bytes: [TestClusterComesAndGoes]. A change of a network's gateway
//     changes only endpoints of that network: [TestNetworksChange].
//   - A server of a Gateway that conflicts with another one is left out for its own port or host only:
//     [TestGatewayTLS]. The same holds for connection routes: [TestConnectionRoutes].
//   - Clusters verify the names of a DestinationRule, else of a ServiceEntry. If several settings are for one port, the
//     first is in force. A port at which clients call endpoints by their addresses keeps the mesh's TLS:
//     [TestUpstreamTLS]. Translation never changes an object: [TestRulesStayAsTheyAre].
//   - Gateways serve and announce HTTP/3 only if a variable enables it, the Service has the port for UDP, and filters
//     and settings of the server work over QUIC too: [TestHTTP3].
//   - Headless services have a chain for each address instead of a listener only if a variable says so:
//     [TestHeadlessChains].
//   - Labels of services keep sessions at one endpoint only if a variable enables it: [TestSessions].
//   - A gateway's proxy gets the Secrets that a Gateway selecting it names, or a DestinationRule, from the namespace in
//     the name. A change of one Secret makes nothing else dirty: [TestSecrets], [TestSecretNames]. A server of mode
//     AUTO_PASSTHROUGH has one chain for each service that its hosts cover, and none with a star in a server name:
//     [TestAutoPassthrough].
//   - The VirtualService of a host with the narrowest exportTo comes first: [TestVirtualServicePrecedence]. One of two
//     colliding objects wins, in any order of arrival: [TestCollisionsHaveOneWinner], [TestObjectOrderDoesNotMatter].
//   - The bytes are the same if changes arrive one by one or in one batch, with the memo and without, also for
//     subscriptions: [TestHistories], [pilot/translate/engine.TestSetByNameMatchesFreshOne].
//   - A Set that is made from an earlier one equals a new one, also for clients that missed revisions, and a Snapshot
//     does not change afterwards: [TestIncrementalSetsMatchFreshOnes]. Each kind of change gives what a new world
//     gives: [TestChangesMatchFreshWorld]. A Dirty without one of its changes fails these tests:
//     [TestHiddenChangesAreFound].
//   - A partition that read a row of a table is dirty when a commit changes the row, and so are the cohorts that read
//     it. The edit of a policy reassigns the proxies of its own namespace, or all of the mesh if it is in the root
//     namespace: [TestWhatIsReadMakesDirty]. Each rule of invalidation is needed for that: [TestEachRuleIsNeeded].
//   - The cost of an object is linear in its size, and the cost of a gateway in its servers on one port: [TestLinear].
//     The memory of a cohort is known: [TestBytesOfCohorts].
//   - No memo key holds a Snapshot or an Index: [TestMemoKeysHoldNoSnapshot]. Chains with the same policies share their
//     filters: [pilot/translate/hooks.TestFiltersAreMadeOnce]. Unused Snapshots, scopes and name lists are freed:
//     [TestOldSnapshotsAreCollected], [TestUnusedScopesAreEvicted], [TestNameListsAreEvicted].
//   - Every kind that translations read is in the generated worlds and the histories: [TestEveryKindIsGenerated]. Every
//     field of an object changes the bytes of some proxy, or a finding names it, and so does every value of an enum
//     that is not the default: [TestNoFieldIsIgnored]. The same holds for the mesh configuration, but for fields that
//     act elsewhere: [TestNoMeshFieldIsIgnored].
//   - A port of a Sidecar's ingress listener with TLS settings, which are not supported, accepts mutual TLS of the mesh
//     alone: [TestSidecarIngressWithTLSTakesPeersAlone]. The protocol of a Sidecar's port without one is detected:
//     [TestSidecarPortsWithoutProtocolAreSniffed].
//   - Settings of the control plane for HTTP/1.0, for the origin of requests and for handshakes are in force in the
//     listeners of all proxies: [TestTuningOfAllProxies].
//   - A listener never takes a port that its proxy uses: [TestOwnPorts]. A proxy that is too old for a command of a
//     header or a tag is sent a dash for the command: [TestOlderCommands]. A route configuration is never empty:
//     [TestNoRouteConfigurationIsEmpty].
//   - Endpoints have the priorities and localities the weights of istiod, by locality, label and zone:
//     [pilot/translate/eds.TestPriorities], [pilot/translate/eds.TestShares], [deploy/e2e/traffic.TestFailover],
//     [deploy/e2e/traffic.TestDistribution].
//   - A proxy that asks for it has an assignment of the replicas of its workload in its region. The replicas share it,
//     and it follows the endpoints. Envoys balance by zone with it: [TestSelfCluster], [pilot/cohort.TestSelf],
//     [deploy/e2e/traffic.TestZones].
//   - A feature is one folder and one line of the catalog. Its resources reach the workloads that it selects, and an
//     edit of its object the proxies of the object's namespace only: [TestFeatureIsOneLine]. A hook is called for every
//     cluster, listener, connection manager and TCP proxy of the selected workloads, and for no other:
//     [TestHooksReachEveryResource].
//   - A workload has the filters of the policies that select or target it, and no others, also while its Pod is
//     unknown: [TestPoliciesReachTheirWorkloads], [TestTargetedPoliciesOpenNothing],
//     [TestPoliciesReachUnknownWorkloads]. A dry run denies nothing, and begins and ends at once:
//     [TestDryRunEndsAndBegins].
package translate
