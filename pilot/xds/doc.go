// Package xds is the DiscoveryServer: it serves the aggregated discovery service over state-of-the-world and delta
// streams.
//
// A Translator makes the resources that a proxy is sent. This package decides which client is sent which resources,
// when and in which order. It never looks inside a resource, and opens no port. Options.Authenticate identifies a peer,
// and package authorize decides what it may do.
//
// Each layer depends only on the layers listed before it. The first three, and api, are packages; deploy/house checks
// their imports:
//
//   - diff: the difference between two Unions of resources, computed once for all streams that need it.
//   - wire: requests and responses as bytes. Lists of names and versions that clients repeat are shared.
//   - session: the protocol of one stream. Its input is requests and snapshots, its output is responses.
//   - conn: one stream. Its owner, the goroutine of the gRPC handler, alone uses the session; a reader goroutine passes
//     requests to it. The owner sends a response itself if the client has acknowledged almost all earlier ones, so that
//     Send does not block. A goroutine sends other responses. The owner handles all other events while it waits for a
//     translation slot, and never waits for the peer. The watchdog ends the stream of a client that does not read.
//     arrival.go has the turn of a stream whose first requests are read, deadlines.go the waits of a stream that
//     starts, resumes or leaves, and place.go its place among the streams that are sent their first configuration.
//     profile.go has the differences between kinds of clients.
//   - subscriberGroup: streams that are sent the same resources. It checks once for all of them whether a snapshot
//     changes any, in a goroutine that ends with the check.
//   - Server: the set of streams, the newest snapshot, the translation slots, the metrics. Publish never waits for a
//     stream.
//
// Two hooks run before a stream's first response. Options.Connections may block, in a goroutine of its own, or refuse
// the stream. World.WorkloadKnown delays the response a little until the workload is known. Neither delays other
// streams, and the session does not depend on them.
//
// Only peers with a proved identity receive secrets. Names of other namespaces are removed from a peer's requests
// before the session sees them, unless the Snapshot shares the secrets with the peer. Access decides whether the peer's
// service account may list Secrets. Until it has answered, the session is guarded and sends only secrets that are
// shared with the account or with all accounts. Both are in secrets.go. A subscription to a secret also makes the
// server read it: World.WantSecrets passes the names to ingest.SecretDemand, config/crd reads the Secret, and it
// arrives as a change.
//
// Progress says how far proxies are with a revision, from the debts of sessions, the pushes that groups and streams
// have not compared, and the proxies that have left: owing.go. It waits for no stream.
//
// A client whose node has GENERATOR=api is sent objects of configuration, which Options.Objects makes, instead of a
// proxy's resources. Each response has all objects of a type. Only peers that Options.Authorizer permits are served.
//
// # Guarantees
//
//   - After any history, a peer has the secrets of the namespace that it proved, and was sent no other:
//     [TestSecretsGoToTheirNamespace]. Plaintext peers and readers of configuration get none:
//     [TestPlaintextPeersGetNoSecret], [TestSecretsAreForProxies]. With several clusters, a certificate does not prove
//     the cluster: [TestCertificateProvesNoCluster], [TestSecretsOfRemoteClusters],
//     [deploy/e2e/kube.TestRemoteSecrets].
//   - Secrets that objects of the Gateway API share with another namespace go there too, for as long as they are
//     shared. The Secrets of a Gateway go to the account of its own proxies, which may list no Secrets, and to no other
//     account: [TestSharedSecrets], [TestSecretsSharedWithAccounts], [TestSecretsSharedWithoutAccess],
//     [pilot/derive/gatewayapi.TestShared].
//   - A secret that a peer may no longer have is taken from it: [TestAccessToSecrets], from real Envoys too, by either
//     protocol: [deploy/e2e/gatewaytls.TestCluster].
//   - A client that resumes loses removed clusters, while endpoints go on changing:
//     [TestGoneClustersAreRemovedWhileEndpointsChange]. It loses nothing before its cluster is read:
//     [TestWhoResumesWaitsForItsCluster].
//   - A tool that asks for debug pages has a stream of its own, which is not a client. A type that is not served
//     affects no other: [TestDebugPages], [TestUnknownTypesAreIgnored].
//   - An Envoy that waits for certificates is a finding: [TestWaitsForCertificates], [TestWarmingIsNoFinding]. So is
//     metadata without effect: [TestMetadataIsNoticed].
//   - Objects are served to permitted addresses only: [TestObjectsAreServedToAPIClientsOnly].
//   - A peer's identity is the one that it proved. A proxy of another namespace by its metadata or its name is refused:
//     [TestPeersAreAuthenticated]. So is a proxy of a pod that runs as another service account: [TestAccountOfThePod],
//     [pilot/cohort.TestWorkloadOfProxy]. A stream ends when its proof expires, and soon after the proof was revoked or
//     proves something else: [TestStreamEndsWithItsCredential], [TestStreamEndsWhenItsProofIsRevoked],
//     [TestStreamEndsWhenItsPeerIsAnother], [TestDebugPagesAfterARevocation], [pilot/bootstrap.TestRevoked],
//     [citadel/authenticate.TestPodGoesAfterAReview].
//   - Publishing never waits for a stream. A slow stream is sent the newest snapshot, and a stalled stream is cut:
//     [TestPublishNeverWaits], [TestTheLatestWins], [TestStalledReaderIsCut].
//   - A stream is not woken by a Snapshot that changes nothing for it, and is sent the newest when it asks. If proxies
//     only may belong to other cohorts, no group compares Sets: [TestGroupSleepsThroughPushesWithNothingForIt],
//     [TestUnknownTypeStaysInItsGroup], [TestNotifiedLateThenChangesGroup], [TestLeavesItsGroupBeforeThatHasChecked],
//     [pilot/bootstrap.TestHistories].
//   - Gateways and new proxies go first, and no authenticated proxy within its bounds is refused while there is memory:
//     [TestGatewaysAndNewProxiesGoFirst], [TestConnectStorm], [TestRefusedWhereMemoryStaysShort]. Envoys that can are
//     sent virtual hosts by themselves: [TestVirtualHostsAloneForEnvoysThatCan].
//   - No identity holds more than a tenth of the streams, of the memory for subscribed names, of the memory for
//     versions that clients have named, or of the memory for configuration that no other proxy has:
//     [TestStreamsOfOneIdentity], [TestNamesOfOneIdentity], [TestVersionsOfOneIdentity], [TestCohortsOfOneIdentity].
//     The identities of one namespace, or all peers without one, leave the last tenth of the streams and most of that
//     memory to others: [TestStreamsOfOneTenant], [TestMemoryOfOneTenant].
//   - Few of one identity's streams and groups wait for a slot at a time, so that others do not wait behind all of
//     them: [TestTurns], [TestGroupsTakeTurns], [TestDebugAnswersOfOneIdentity].
//   - Peers on other hosts without an identity are bounded for each address: [TestUnprovedStreamsAreFew],
//     [TestUnprovedNamesAreFew], [TestConnectionsOfOneAddressAreBounded].
//   - Where memory is short, new streams wait. First configurations are sent to as many streams at a time as fit into
//     the memory that is left, in order: [TestNoStreamsWhereMemoryIsShort], [TestPlaces], [TestAmpleMemory],
//     [TestPlacesOfResumers], [TestFirstConfiguration]. The first requests of a few of them are read at a time:
//     [TestArrivals].
//   - A faulty client costs a bounded number of log lines: [TestLogOfClientFaultsIsBounded]. A stream keeps no copy of
//     its node's metadata: [TestNodeIsNotKept].
//   - No revision is said to be in force while a connected proxy that it concerns has not acknowledged everything, or a
//     proxy that left lately has not come back. Proxies that it does not concern do not matter: [TestProgress],
//     [TestLater], [TestProgressBeforeTheFirstConfiguration], [TestProgressWaitsForNewNames],
//     [TestProgressOfRejections], [TestProgressOfDepartures], [TestDeparturesAreBounded], [TestProgressMissesNoPush],
//     [pilot/xds/session.TestHistories], [pilot/bootstrap.TestHistories].
//   - A proxy that rejects a resource and starts again owes it until it has answered its first configuration, and also
//     after that if it rejects the resource again: [TestProgressOfRestarts], [TestProgressOfLateEnds].
//   - A proxy that left while its workload runs is awaited for ten minutes, and is named for as long as the workload
//     exists: [TestHeldProxies]. The same holds for a proxy that is not connected when the server starts, or when
//     another server ends, and that a Pod runs: [TestMissingProxies].
//   - A push counts the clients that were sent something because of it, until they have acknowledged it, rejected it or
//     left: [TestPushesAreCounted].
package xds
