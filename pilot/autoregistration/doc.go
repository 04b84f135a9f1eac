// Package autoregistration makes a WorkloadEntry for each proxy that says which WorkloadGroup it belongs to, writes the
// health that the proxy reports into its status, and removes it a while after the proxy has gone.
//
// It learns of proxies from the streams of package xds, and is one of the few parts that write. What it writes comes
// back as every object does: through the source that reads the API server, or, without one, through the handler of the
// memory store. It decides nothing about what other proxies are sent.
//
// Who is behind an entry is kept in its annotations, so that replicas and restarts agree: the group, the instance that
// holds the proxy's stream, and since when it is connected or disconnected. The instance that saw the last stream end
// deletes the entry after the grace period, unless it finds that the proxy has come back, to itself or to another.
// Every write names the version that it is made for, but a creation, and the claim of a proxy that has just come.
// Entries of instances that are gone are the sweep's, which the leader runs.
//
// A stream may register only by an identity that it proved, and only for the namespace and the service account of that
// identity; see Options.
//
// State: the Controller's map of entries, under its lock. Goroutines: as many as the constant workers, one that hands
// them entries, and one that looks after the entries of this instance, all while Run does, and those of client-go's
// workqueue. Streams wait for each other only for their turn to write, which goes round by namespace: one whose writes
// hang does not shut out the others.
//
// # Guarantees
//
//   - A workload that registers is an endpoint while it is connected and healthy: [TestHistories],
//     [pilot/bootstrap.TestRegistration], [deploy/e2e/kube.TestRegistration].
//   - A thousand machines that connect at once are registered by one request each, and none is refused:
//     [TestAThousandMachinesAtOnce], [deploy/e2e/kube.TestAThousandMachinesAtOnce].
//   - No identity holds more than a tenth of the entries of an instance, and no namespace the last tenth of them:
//     [TestEntriesOfOneIdentity], [TestEntriesOfOneTenant].
//   - A proxy of another host registers only by an identity of its own namespace and service account, unless
//     --registerUnauthenticated is set, with a cluster as without: [TestWhoMayNotRegister], [TestWhoNeedsNoIdentity],
//     [pilot/bootstrap.TestStrangersRegisterNothing].
//   - A namespace whose writes hang does not delay others: [TestHangingNamespaceHoldsUpNoOther]. Names of entries
//     differ where workloads differ: [TestEntryNames]. A stop writes what changed while an entry was being written:
//     [TestStopWritesWhatChangedDuringAStep].
//   - Entries of a server outside the cluster stay while it runs, and go when it is killed:
//     [TestSweepDeletesWhatIsLeftBehind], [deploy/e2e/kube.TestServerOutsideTheCluster],
//     [deploy/e2e/kube.TestServerOutsideTheClusterIsKilled].
package autoregistration
