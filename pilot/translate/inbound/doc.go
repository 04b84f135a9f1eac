// Package inbound finds the ports on which a sidecar takes calls for its workload. Clusters (cds) and listeners (lds)
// for incoming traffic are made from the same ports.
package inbound
