// Package externaldns tests the DNS records that external-dns itself makes for Gateways and routes of both APIs, on a
// real API server with a node of package node. The test is the provider of external-dns, by its protocol for webhooks.
// The gateways are real Envoys.
//
// # Guarantees
//
//   - Hosts of Gateways, VirtualServices and HTTPRoutes lead to the addresses of their gateways' Services. The records
//     follow changes of routes, and a route that is not accepted has none: [TestRecords].
//   - A request to the address in a record reaches the workload: [TestRecords].
package externaldns
