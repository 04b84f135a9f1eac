// Package multicluster makes one source of configuration out of all remote clusters. The clusters are named by Secrets
// of the system namespace with the label istio/multiCluster=true: each key of their data is the ID of a cluster, and
// its value a kubeconfig.
//
//   - A cluster comes and goes with its key. When it goes, all that it had is handed on as deleted.
//   - An ID that two Secrets have is that of the older one, or of the first by name. The server's own ID is refused.
//     Both are findings.
//   - A kubeconfig that changes starts a second source. When that has synced, only what differs between the two is
//     handed on, and the first source stops. Until then, and for as long as the second one cannot be made or does not
//     sync, the first one goes on.
//   - A source that ends by itself is made again, after a pause that doubles from 1 s up to 1 min, and its objects stay
//     meanwhile.
//   - The first call of the handler comes when every cluster known at the start has synced, cannot be connected to, or
//     has taken longer than the timeout. A cluster that is late is added when it comes.
//
// What a kubeconfig holds is in no log and no finding: whatever an error of a source quotes of it is redacted.
//
// It neither reads kubeconfigs nor speaks to API servers; the injected Connect makes sources that do. A Controller owns
// which sources run and, for each cluster, a map of pointers to what it handed on. Its methods may be called from any
// goroutine, the getters from the handler too. For each source it runs one goroutine, and timers; those of sources have
// returned when Run does. The handler is called from those of sources, and from those that call Handle.
//
// # Guarantees
//
//   - A bad kubeconfig keeps the cluster that it replaces, and its text is never shown: [TestBadKeepsTheLastGood],
//     [TestRedact].
//   - An unreachable cluster delays readiness no longer than the timeout: [TestReadinessWaitsNoLongerThanTheTimeout].
//     A source that ends is started again, and its objects stay: [TestSourceEnds].
//   - A move between files and an API server changes nothing in a connected Envoy. A remote cluster can come, fail and
//     go without a failed request: [deploy/e2e/clusters.TestClusters].
package multicluster
