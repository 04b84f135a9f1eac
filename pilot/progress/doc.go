// Package progress says whether a version of an object is in force: which connected proxies it concerns, how many have
// acknowledged all that it changed, and which have not.
//
// The answer has two parts. Package archive knows which snapshot has which version of an object. The streams know which
// snapshots their clients owe something: see xds.Progress. So there is no state for each object and proxy, and nothing
// is worked out before it is asked.
//
// An object that has not changed since the start has the oldest revision, as have the versions that the archive has
// dropped: then everything that is owed up to that revision must be settled. A commit that selects a namespace puts
// objects in force that its batch does not have. So its revision is the oldest one for all objects.
//
// # States
//
//   - InForce: each proxy whose resources differ because of the version has acknowledged them, and what they refer to.
//   - Behind: some have not, or the version is not published yet.
//   - Rejected: at least one has rejected a part of it.
//   - Superseded: a newer version, or a deletion, replaced it.
//   - NotSeen: no source has handed over this version.
//   - WithoutEffect: it changes nothing for a connected proxy. Why and the findings say the reason.
//   - Invalid: the control plane does not use this version as it is written, and the last good one may stay in force.
//   - Unknown: a replica cannot be asked; or a replica ended, and its proxies may still be connecting to another one;
//     or a proxy left long ago, and its workload still exists.
//
// If no proxy was sent a response because of a version, the version concerns no proxy that was connected at its commit.
// Each proxy that connected later got the newest configuration before it was ready, and no record says which objects
// that configuration was made of. So if such proxies exist, the version is InForce and Counted is false, unless a
// finding says that the object reaches no proxy. Counted is also false for an object of the first load.
//
// # Replicas
//
// Generations and contents are the same on all replicas, and revisions are not. So each replica answers for its own
// streams, and the one that is asked merges the answers. It names the version in its questions, so a replica that has
// not read it makes the answer Behind. A proxy that has left a replica while it owed something is no longer awaited
// once another replica says that it is connected there: each replica says so before it looks at its streams, so a proxy
// that moves meanwhile is found in one of both places. A replica does not say that a proxy which has started again is
// connected before the proxy has answered its first configuration. Each replica also asks the others at intervals where
// its departed proxies are, and forgets the proxies that are connected elsewhere.
//
// Replicas that are not ready are asked too, because they may have streams, unless they refuse connections. For
// departureTime after a replica ends or starts again, its proxies may be connected to none, and the answer is Unknown.
// Each replica says which others it has seen end or start again, and the asking one says how long it has been running,
// so a replica that has started again learns it from the others. If all have started lately, the answer is Unknown once
// a proxy with configuration of an earlier process has connected. A replica that starts, or sees another one end, also
// expects the proxies that Pods run: see xds.Server.Expect.
//
// # State and goroutines
//
// The committing goroutine calls Begin before a batch is applied and Commit afterwards. Between both, no answer is
// given about the objects of the batch. A mutex guards the fields. Run is one goroutine, which sleeps while all recent
// changes are settled: it fills in how many proxies a change concerned and when all had it, for at most maxOpen
// revisions.
//
// # Guarantees
//
//   - InForce is never said while a stream owes something of the version, while a newer change of the object is on its
//     way, or about a version that has not been read: [TestStates], [TestBetweenBeginAndCommit].
//   - A version that is not used as written is Invalid, and never InForce, whatever proxies acknowledge: [TestInvalid].
//     So is a Secret with an error: [TestContents].
//   - Objects that the filter hides, and kinds that are not read, are WithoutEffect with the reason: [TestHidden].
//   - A Secret that no proxy of a replica needs is not read there, and WithoutEffect there. The replicas that need it
//     decide: [TestUnneeded].
//   - Objects that became visible without a change of their own are awaited: [TestSelections].
//   - A version of an object that was deleted and written again is no version of the one before, and a content that was
//     replaced and written again is awaited: [TestWrittenAgain].
//   - The answer of several replicas is never InForce unless each has said so: [TestReplicas]. A proxy that moves
//     between replicas is awaited in one of both places: [TestMovedProxies], [TestLeavesAgain]. So is one of several
//     with the same name in different clusters: [TestProxiesOfTheSameName]. A proxy that left long ago and may run on
//     makes the answer Unknown and is named: [TestSilentProxies]. A proxy that a Pod runs, and that has connected to no
//     replica since one started or ended, is awaited and then named too: [TestMissingProxies]. A replica that ends or
//     starts again makes the answer Unknown for a while: [TestEndedReplicas]. So do all replicas that have started
//     again: [TestAfterAStart].
//   - In random histories of one and of three replicas, with clients that stall, reject, leave, resume elsewhere and
//     start again, and replicas that lag, end, start and cannot be asked, InForce is never said while a client serves
//     an older version, and is said in the end: [TestHistories].
//   - A version is InForce, without a number, if it concerned no connected proxy and other proxies connected later to
//     any replica: [TestConnectedLater], [TestConnectedLaterElsewhere]. So is an object of the first load:
//     [TestUncounted]. If a finding says that the object reaches no proxy, it is WithoutEffect in both cases:
//     [galley/analysis.TestSaysIdle].
//   - The history has authors, numbers of proxies, durations and commands: [TestHistory]. If a push turns out not to
//     concern a proxy, the proxy is in no number and makes no version InForce: [TestMayBeConcerned]. A version that no
//     proxy had, or that is not used as it is written, has no duration: [TestHistoryOfWhatNoneHad],
//     [TestHistoryOfInvalid].
//     The first load is in no history and costs no memory: [TestFirstLoad].
//   - With real streams, answers and clients agree, for changes, deletions and rejections:
//     [pilot/bootstrap.TestInForce], [pilot/bootstrap.TestInForceLater], [pilot/bootstrap.TestRejectedAfterARestart].
//   - With real Envoys and two replicas, requests meet the new version only once it is in force, and no proxy that is
//     stopped, rejects or has lost its replica is left out: [deploy/e2e/inforce.TestInForce].
package progress
