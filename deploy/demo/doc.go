// Command demo shows the control plane and the agent at work: it serves a copy of a sample, bookinfo or with -sample
// gateway-api the same by the Gateway API, to real Envoys, an ingress gateway and a sidecar for every pod, each with an
// agent. The pods of bookinfo call one another by mutual TLS alone. It sends requests through them, prints who
// answered, moves the split of one service while requests are in flight, and leaves nothing behind. With -stay it stays
// up and prints addresses on loopback to reach the gateway and the debug pages from a shell.
//
// It needs no root, no fixed port and no package: pods are network namespaces. Where the machine forbids those, it says
// so and runs the gateway alone on loopback, with plain servers behind it.
//
// # Guarantees
//
//   - The tour of make demo runs, with an agent beside each Envoy: [TestTour].
package main
