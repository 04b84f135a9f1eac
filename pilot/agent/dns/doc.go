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
package dns
