// Package inbound determines the ports on which a sidecar accepts calls to its workload. Clusters (cds) and listeners
// (lds) for incoming traffic are made from the same ports.
package inbound
