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
//
// # Guarantees
//
//   - After any history, a peer has the secrets of the namespace that it proved, and was sent no other:
//     [TestSecretsGoToTheirNamespace]. Plaintext peers and readers of configuration get none:
//     [TestPlaintextPeersGetNoSecret], [TestSecretsAreForProxies]. With several clusters, a certificate does not prove
//     the cluster: [TestCertificateProvesNoCluster], [TestSecretsOfRemoteClusters],
//     [deploy/e2e/kube.TestRemoteSecrets].
//   - Secrets that objects of the Gateway API share with another namespace go there too, for as long as they are
//     shared. The Secrets of a Gateway go to the account of its own proxies, which may list no Secrets, and to no
//     other account: [TestSharedSecrets], [TestSecretsSharedWithAccounts], [TestSecretsSharedWithoutAccess],
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
//   - A peer's identity is the one that it proved. A proxy of another namespace by its metadata or its name is
//     refused: [TestPeersAreAuthenticated]. So is a proxy of a pod that runs as another service account:
//     [TestAccountOfThePod], [pilot/cohort.TestWorkloadOfProxy]. A stream ends when its proof expires, and soon after
//     the proof was revoked or proves something else: [TestStreamEndsWithItsCredential],
//     [TestStreamEndsWhenItsProofIsRevoked], [TestStreamEndsWhenItsPeerIsAnother], [TestDebugPagesAfterARevocation],
//     [pilot/bootstrap.TestRevoked], [citadel/authenticate.TestPodGoesAfterAReview].
//   - Publishing never waits for a stream. A slow stream is sent the newest snapshot, and a stalled stream is cut:
//     [TestPublishNeverWaits], [TestTheLatestWins], [TestStalledReaderIsCut].
//   - A stream is not woken by a Snapshot that changes nothing for it, and is sent the newest when it asks. If proxies
//     only may belong to other cohorts, no group compares Sets: [TestGroupSleepsThroughPushesWithNothingForIt],
//     [TestUnknownTypeStaysInItsGroup], [TestNotifiedLateThenChangesGroup], [TestLeavesItsGroupBeforeThatHasChecked],
//     [pilot/bootstrap.TestHistories].
//   - Gateways and new proxies go first, and no authenticated proxy is refused: [TestGatewaysAndNewProxiesGoFirst],
//     [TestConnectStorm]. Envoys that can are sent virtual hosts by themselves:
//     [TestVirtualHostsAloneForEnvoysThatCan].
//   - No identity holds more than a tenth of the streams, of the memory for subscribed names, or of the memory for
//     configuration that no other proxy has: [TestStreamsOfOneIdentity], [TestNamesOfOneIdentity],
//     [TestCohortsOfOneIdentity]. The identities of one namespace, or all peers without one, leave the last tenth of
//     the streams and most of that memory to others: [TestStreamsOfOneTenant], [TestMemoryOfOneTenant].
//   - Few of one identity's streams and groups wait for a slot at a time, so that others do not wait behind all of
//     them: [TestTurns], [TestGroupsTakeTurns], [TestDebugAnswersOfOneIdentity].
//   - Peers on other hosts without an identity are bounded for each address: [TestUnprovedStreamsAreFew],
//     [TestUnprovedNamesAreFew], [TestConnectionsOfOneAddressAreBounded]. A server without memory to spare accepts no
//     more streams: [TestNoStreamsWhereMemoryIsShort].
//   - A faulty client costs a bounded number of log lines: [TestLogOfClientFaultsIsBounded]. A stream keeps no copy of
//     its node's metadata: [TestNodeIsNotKept].
//   - A push counts the clients that were sent something because of it, until they have acknowledged it, rejected it
//     or left: [TestPushesAreCounted].
package xds
