// Package externaldns tests external-dns itself, on a real API server with a node of package node: which DNS records
// its sources make of Gateways and routes of both APIs. The test is its provider, by external-dns's protocol for
// webhooks. The gateways are real Envoys.
//
// # Guarantees
//
//   - Hosts of Gateways, VirtualServices and HTTPRoutes lead to the addresses of their gateways' Services. The records
//     follow changes of routes, and a route that is not accepted has none: [TestRecords].
//   - A name of a record reaches the workload, by the address that the record has: [TestRecords].
package externaldns
