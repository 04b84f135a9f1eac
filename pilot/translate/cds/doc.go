// Package cds makes clusters: Envoy's envoy.config.cluster.v3.Cluster, by CDS.
// https://www.envoyproxy.io/docs/envoy/latest/configuration/upstream/cluster_manager/cds
//
// A cluster for outgoing traffic (clusters.go) belongs to a port of a service, or to one of its subsets. Clusters for
// incoming traffic (inbound.go) lead to the workload itself. Clusters without a service are fixed (fixed.go). Endpoints
// come by EDS (package eds), except for clusters that Envoy resolves itself, which contain them.
package cds
