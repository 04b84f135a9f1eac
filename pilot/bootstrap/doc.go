// Package bootstrap builds the server from its Options and runs it: ingest, translation, the DiscoveryServer, the HTTP
// servers, readiness and the graceful stop. It is the one place that knows every part; no part knows it.
//
// What runs is a components.List. Steps of the start end one after another; Components run in the background until the
// server stops. The first error stops the server. A new part of the server is a file, and a line in parts.go.
//
// Commits are made by one goroutine at a time. The first runs in the goroutine of the source that synced last, and all
// later ones run in the throttle's.
//
// It does not read flags, the environment or signals: that is cmd's.
//
// # Guarantees
//
//   - Until every source has synced, /ready fails and nothing is served: [TestNotReadyBeforeSync],
//     [TestServerWaitsForTheOneItReads]. An empty directory is a mesh: [TestEmptyDirectory].
//   - A server that stops fails /ready at once and serves on for a while. A second signal ends it:
//     [deploy/e2e/charts.TestCharts], [cmd/pilot-discovery.TestScripts].
//   - A stop ends the streams, leaves no goroutine and removes the address file: [TestServe].
//   - Webhooks answer on a port of their own, with the server's certificate: [TestWebhooks]. An address on another
//     host has a bounded number of connections there: [api/quota.TestConnectionsOfOneAddress]. API servers are known
//     by their endpoints: [TestAPIServersAreKnown].
//   - The sources in the mesh configuration are in force. A wrong one keeps the server from starting:
//     [TestConfigSources], [TestConfigSourcesRefused]. The readiness probe says which one is missing and why:
//     [TestUnreachableConfigSource].
//   - A server sends its own objects to permitted control planes only: [TestOneServerFeedsAnother],
//     [TestObjectsAreNotPublic]. Servers that read each other forget what is deleted: [TestServersThatReadEachOther],
//     [TestChainOfServers].
//   - After any history of the whole server, clients of every protocol have what a new Translator makes:
//     [TestHistories], [TestKnownHistories], [TestCommits].
//   - While the largest object of each kind comes, changes and goes, other changes reach every stream:
//     [TestLargeObjects].
//   - Proxies that ask for roots are sent those of the CA and of the mesh configuration whenever these change, and
//     none without ISTIO_MULTIROOT_MESH: [TestRootsAreSent], [TestRootsAreNotSent], [TestSpiffeBundles]. Their agents
//     trust them on the open stream: [deploy/e2e/pilotagent.TestAgents/FurtherRoots].
//   - A connected proxy whose workload is gone keeps its inbound configuration for a while: [TestDeparture],
//     [deploy/e2e/clusters.TestClusters].
//   - The version has the form that istioctl compares: [TestVersion].
package bootstrap
