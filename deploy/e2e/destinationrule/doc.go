// Package destinationrule tests what real Envoys make of traffic policies.
//
//   - destinationrule_test.go: the mesh; tunnels through a proxy, PROXY headers, and the protocol of requests.
//   - pool_test.go: bounds of connections, requests and retries, as they are met; how new endpoints warm up.
//   - sidecar_test.go: bounds of what a sidecar takes, and its TLS.
//   - outliers_test.go: which endpoints are ejected, for what, and how many.
package destinationrule
