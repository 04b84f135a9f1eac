// Package external keeps in remote clusters what a control plane keeps in its own: whatever the injected Keep does,
// such as the caBundles of webhooks and the ConfigMaps with the roots.
//
//   - A remote cluster asks for that with the annotation topology.istio.io/controlPlaneClusters of its system
//     namespace, which lists the IDs of clusters whose control planes it wants, or is "*". A cluster without it is
//     only read.
//   - The control plane has to be one that serves others (EXTERNAL_ISTIOD). If it is not, and a cluster names it, that
//     is a finding.
//   - A cluster is kept from when it is known until its Secret or the annotation goes. A kubeconfig that changes ends
//     Keep and begins it anew.
//
// It speaks to no API server itself: it hears of namespaces as changes. State: a Keeper's, under its lock. Run has one
// goroutine for each cluster that is kept, beside its own.
//
// # Guarantees
//
//   - A remote cluster whose system namespace names the control plane's cluster gets caBundles, failurePolicy and
//     roots like the own cluster, for as long as it does. No other cluster is written to: [TestKeeper],
//     [TestKeepsNothing], [deploy/e2e/kube.TestRemoteClusters].
package external
