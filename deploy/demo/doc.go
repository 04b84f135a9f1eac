// Command demo shows the control plane and the agent at work. It serves a copy of the sample bookinfo, or of
// gateway-api with -sample gateway-api, to real Envoys: an ingress gateway and a sidecar for every pod, each with an
// agent. The pods of bookinfo require mutual TLS. The demo sends requests, prints which pods answered, changes the
// split of one service while requests are in flight, and leaves nothing behind. With -stay it keeps running, and prints
// addresses on loopback of the gateway and the debug pages.
//
// It needs no root, no fixed port and no package, because pods are network namespaces. On a machine that forbids those,
// it says so and runs only the gateway on loopback, with plain servers behind it.
//
// # Guarantees
//
//   - The tour of make demo runs, with an agent beside each Envoy: [TestTour].
package main
