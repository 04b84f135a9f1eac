// Package flagger tests Flagger as it is released, on a real API server with a node of package node: it makes the
// Services, DestinationRules and the VirtualService of an application, and shifts requests to a new version if the
// metrics are good that a real Prometheus has scraped from sidecars. The sidecars are real Envoys.
//
// # Guarantees
//
//   - A version that answers is promoted because of the requests that sidecars report, and no request fails meanwhile:
//     [TestCanary].
//   - A version that fails is rolled back, and then no request reaches it: [TestCanary].
package flagger
