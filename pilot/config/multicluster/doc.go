// Package multicluster combines the sources of all remote clusters. Secrets of the system namespace with the label
// istio/multiCluster=true name the clusters: each key of their data is the ID of a cluster, and its value a kubeconfig.
// Or the files of a directory name them, and each file is a kubeconfig with the ID of its cluster.
//
//   - A cluster is added and removed with its key or file. If it is removed, all its objects are deleted.
//   - If two Secrets name an ID, the older one takes precedence, or the first by name, and of files the first by path.
//     The server's own ID is ignored. Both are findings.
//   - A changed kubeconfig starts a second source. When it has synced, only the differences are delivered, and the
//     first source stops. Until then, also if the second one cannot be made or does not sync, the first one continues.
//   - A source that ends is made again, with a backoff from 1 s to 1 min, and its objects stay in force.
//   - The handler is first called when every cluster known at the start has synced, failed to connect, or exceeded the
//     timeout. A late cluster is added when it has synced.
//
// Logs and findings never show the contents of a kubeconfig: quotes in errors are redacted.
//
// It does not connect to API servers; Options.Connect makes sources that do. A Controller owns the running sources and,
// for each cluster, a map of pointers to the delivered objects. Its methods are safe for concurrent use, and the
// handler may call the getters. It runs one goroutine and timers for each source. Run returns after them. The sources
// and callers of Handle call the handler from their goroutines.
//
// # Guarantees
//
//   - A bad kubeconfig keeps the cluster that it replaces, and its text is never shown: [TestBadKeepsTheLastGood],
//     [TestRedact].
//   - An unreachable cluster delays readiness no longer than the timeout: [TestReadinessWaitsNoLongerThanTheTimeout].
//     A source that ends is started again, and its objects stay: [TestSourceEnds].
//   - A file that cannot be used keeps its last content, and its text is never shown: [TestFiles].
//   - A move between files and an API server changes nothing in a connected Envoy. A remote cluster can come, fail and
//     go without a failed request: [deploy/e2e/clusters.TestClusters].
package multicluster
