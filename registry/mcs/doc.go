// Package mcs decides what ServiceExports and ServiceImports (KEP-1645) change: which endpoints of a cluster the
// proxies of other clusters may call, and which services have a host in clusterset.local.
//
//   - A cluster exports a Service with a ServiceExport of the same name. Its endpoints of a Service that it does not
//     export are for proxies of the same cluster.
//   - A cluster imports a service with a ServiceImport that has addresses. The service of the host
//     NAME.NAMESPACE.svc.clusterset.local is a copy of the Service, with these addresses in this cluster. The Service
//     may be one of another cluster. Endpoints of a cluster that does not import it are for proxies of the same
//     cluster.
//   - With ClusterLocal, endpoints of all hosts in the cluster's own domain are for proxies of the same cluster.
//
// A Table is used by one goroutine. It holds no service: package aggregate asks it while it merges clusters. Nothing
// here writes ServiceImports, which are an MCS controller's.
//
// # Guarantees
//
//   - The result depends on the objects that exist, and not on the order of their changes:
//     [registry/aggregate.TestHistoriesOfSets].
//   - What a cluster exports and imports decides which endpoints proxies of other clusters are sent:
//     [registry/aggregate.TestSets].
package mcs
