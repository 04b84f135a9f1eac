// Package dns answers the DNS queries of an application. It answers names of the mesh from the name table that the
// control plane sends, and forwards queries for all other names to the servers in resolv.conf.
//
// A name in the table is answered at once: with its addresses in random order and a TTL of 30 s, or with no data if it
// has no address of the requested family. A name that ends in the first search domain, and is in the table without it,
// is answered with a CNAME to the shorter name, so that resolvers that append search domains ask only once. Wildcards
// such as *.example.com match all names below. Queries for types other than A and AAAA are forwarded.
//
// Before the first table arrives all queries fail with SERVFAIL, because it is not known which names are the mesh's.
//
// A table is replaced as a whole through one atomic pointer. A Server owns its sockets. It runs one goroutine for each
// socket, for each of up to four readers of UDP, for each connection, and for each query that waits for another server.
// The numbers of connections and of waiting queries are limited.
//
// # Guarantees
//
//   - Names of the table are answered from it, including short names and wildcards, with all addresses in random
//     order. A name without addresses of a family is answered with no data, and the servers of resolv.conf are asked
//     for all other names: [TestNamesOfTheTable], [TestAnswersAreShuffled], [TestLongAnswers], [TestOtherServers],
//     [TestAllAddresses].
//   - An agent answers by the table that the control plane sends, probes its application, and serves metrics that
//     Prometheus reads: [deploy/e2e/pilotagent.TestAgents].
//   - A silent or failing server, a flood of queries, a malformed query, or a query that comes back delays no other:
//     [TestSilentServer], [TestWaitingQueriesAreBounded], [TestConnectionsAreBounded], [TestMalformedQueries],
//     [TestLoops], [FuzzDecode], [FuzzDatagrams].
package dns
