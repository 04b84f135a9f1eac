// Package gateway determines the servers of a gateway: the servers of the Gateways that select it, on the ports of its
// workload. Listeners (lds) and route configurations (rds) are made from the same servers.
package gateway
