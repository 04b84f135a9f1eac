// Package exports creates a ServiceExport of the Multi-Cluster Services API for each Service of a cluster, if it is
// asked to (ENABLE_MCS_AUTO_EXPORT).
//
//   - exporter.go: an Exporter creates them in one cluster, while this replica is elected.
//   - reconciler.go: the reconciler of the ServiceExports, which package controllers runs.
//
// A Service that is cluster-local by the mesh configuration is not exported, nor is an ExternalName or a Service of a
// namespace that takes no part in the mesh. A ServiceExport belongs to its Service, with which Kubernetes deletes it.
// It is never changed or deleted here, also if its Service becomes cluster-local. A user who wants no export marks the
// Service as cluster-local, because a ServiceExport that is deleted is created again.
//
// State: the clients of a term, and the names of the cluster's ServiceExports.
//
// # Guarantees
//
//   - Each Service that may be exported has a ServiceExport, and no other Service gets one. A ServiceExport that is
//     there is not written: [TestExporter]. All faults of an API server are findings:
//     [pilot/controllers.TestReconcilers].
package exports
