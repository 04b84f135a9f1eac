// Package untaint removes a taint from the nodes on which the CNI plugin is ready. The infrastructure gives new nodes
// the taint, so that no pod starts there before its traffic is redirected.
//
// A Reconciler, which package controllers runs, watches the pods of the plugin in one namespace, and the nodes. It
// keeps other taints, and writes only if the node has not changed since it was read.
//
// State: the clients of a term, and of each watched object the parts that Reconcile reads.
//
// # Guarantees
//
//   - A node without a ready pod of the plugin keeps its taint, and each node keeps its other taints, including a taint
//     that it gets at the same time: [TestReconciler].
//   - A fault of the API server is a finding, and costs few requests: [pilot/controllers.TestReconcilers].
package untaint
