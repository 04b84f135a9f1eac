// Package autoregistration creates a WorkloadEntry for each proxy that names a WorkloadGroup, writes the health that
// the proxy reports into the entry's status, and deletes the entry some time after the proxy has disconnected.
//
// It learns of proxies from the streams of package xds, and is one of the few packages that write. Its writes return
// like all objects: from the source that reads the API server or, without one, through the handler of the memory store.
// It does not decide what other proxies are sent.
//
// The annotations of an entry record its group, the instance that holds the proxy's stream, and since when the proxy is
// connected or disconnected, so that replicas agree, also after restarts. The instance that saw the last stream end
// deletes the entry after the grace period, unless the proxy has reconnected to it or to another instance. Every write
// names the version that it changes, except a creation and the claim of a newly connected proxy. The sweep, which the
// leader runs, deletes entries of instances that are gone.
//
// A stream may register only with a verified identity, and only for the namespace and the service account of that
// identity; see Options.Authorizer.
//
// State: the Controller's map of entries, under its lock. Goroutines, all while Run is running: the constant workers,
// one that passes entries to them, one that watches the entries of this instance, and those of client-go's workqueue.
// Streams wait for each other only for their turn to write. Turns rotate among namespaces, so that a namespace whose
// writes hang does not delay the others.
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
