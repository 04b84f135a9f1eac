// Package upgrade changes control planes while requests go on: from the release before to this one and back, from one
// revision to another, and from Istio's istiod to this one and back. The charts are installed on a real API server with
// a node of package node, proxies are real Envoys with mutual TLS in mode STRICT, and the old and the new agent run at
// the same time. Each connection of one of the loads carries one request, so that handshakes happen all the time.
//
// previous.txt names the release before, by a tag or a commit. deploy/tools/previous.sh builds it.
//
//   - main_test.go: programs and manifests.
//   - world_test.go: the cluster, applications and their clients; what was installed.
//   - inforce_test.go: whether each proxy is connected and has everything.
//   - upgrade_test.go, revisions_test.go, istiod_test.go: the moves.
//
// # Guarantees
//
//   - An upgrade of two replicas from the release before and the way back fail no request, and no stream stays behind.
//     Agents of both releases work with control planes of both. The root of the CA is replaced meanwhile:
//     [TestUpgrade].
//   - A tag moves from a revision of the release before to a revision of this one and back, and the first revision is
//     uninstalled, without a failed request: [TestRevisions].
//   - Workloads move from Istio's istiod to this control plane and back, with one CA and without a failed request:
//     [TestIstiod].
package upgrade
