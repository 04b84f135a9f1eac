// Package dns answers the DNS queries of an application. Names of the mesh are answered by the name table that the
// control plane sends, all other names by the servers of resolv.conf.
//
// A name of the table is answered at once: with its addresses in random order, each for 30 s; with no data where it has
// no address of the family that was asked for. A name that ends in the first search domain, and is in the table without
// it, is answered by a CNAME to the shorter name: resolvers that append search domains then ask only once. Wildcards
// such as *.example.com match every name below. Queries for other types than A and AAAA go on to the servers.
//
// Before the first table all queries fail by SERVFAIL: nobody knows yet which names are the mesh's.
//
// A table is replaced as a whole, by one atomic pointer. Server owns its sockets. It runs one goroutine for each
// socket, for each of up to four readers of UDP, for each connection, and for each query that waits for another server.
// Connections and waiting queries are bounded.
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
