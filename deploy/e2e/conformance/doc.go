// Package conformance runs the conformance suite of the Gateway API against this control plane: on a real API server
// with a node of package node, so that the suite's manifests run as they are, the Gateways' proxies and the sidecars
// are this agent's real Envoys, and the applications the suite's own.
//
// Without further settings it runs what all must support, the core of each profile. CONFORMANCE=all adds what istiod
// claims beyond that, CONFORMANCE=NAME,NAME runs tests by name. CONFORMANCE_OUT names a folder that gets the report and
// all logs. With ISTIOD and ISTIO_CHART the suite judges a real istiod, by its own chart.
//
//   - main_test.go: programs and manifests, and where results go.
//   - world_test.go: the cluster, the node and its images.
//   - features_test.go: what is claimed, and which tests run.
//   - conformance_test.go: the suite.
package conformance
