// Package pairs tests this project's agent and Istio's, each with this control plane and with istiod: the same pods, on
// the same API server, with a sidecar that serves, one that calls and a gateway. It also measures both agents beside
// each other. Its tests need Istio's programs: `make compat` and `make agents` run them.
package pairs
