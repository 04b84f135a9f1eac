// Package pairs tests this project's agent and Istio's, each with this control plane and with istiod. The pods and the
// API server are the same: a sidecar that serves, one that calls, and a gateway. It also compares the costs of both
// agents. Its tests need Istio's programs: `make compat` and `make agents` run them.
package pairs
