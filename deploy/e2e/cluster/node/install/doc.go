// Package install starts a cluster with a node, on which the charts are installed as a user would: the control plane,
// gateways and sidecars are pods. Prepare collects programs and manifests before a test enters the namespaces of pods.
// Start starts the cluster inside them, and New starts it for tests that ask a World about it. A Load sends requests
// from a pod.
//
// The package has no state. A cluster and its node belong to the test that started them, and end with it.
package install
