// Package external manages in remote clusters what a control plane manages in its own, such as the caBundles of
// webhooks and the ConfigMaps with the roots. The caller's Keep does the work in one cluster.
//
//   - A remote cluster requests it by the annotation topology.istio.io/controlPlaneClusters of its system namespace,
//     which lists the IDs of the clusters whose control planes it wants, or is "*". From a cluster without the
//     annotation the control plane only reads.
//   - The control plane must allow it (EXTERNAL_ISTIOD). If it does not, and a cluster names it, that is a finding.
//   - A cluster is managed from when it is known until its Secret or the annotation is removed. When its kubeconfig
//     changes, Keep is canceled and called again.
//
// The package talks to no API server itself: it receives the namespaces as changes. The state of a Keeper is guarded by
// its lock. Run starts one goroutine for each managed cluster.
//
// # Guarantees
//
//   - A remote cluster whose system namespace names the control plane's cluster gets caBundles, failurePolicy and
//     roots like the own cluster, for as long as it does. No other cluster is written to: [TestKeeper],
//     [TestKeepsNothing], [deploy/e2e/kube.TestRemoteClusters].
package external
