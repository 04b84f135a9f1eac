// Package webhook answers AdmissionReviews of pods with a patch that adds a proxy. It serves /inject, and paths below
// it that name the cluster and the network of the pods: /inject/cluster/NAME/net/NAME.
//
// Package api/admission bounds the requests, as for the other webhooks. The webhook has no state of its own.
//
// # Guarantees
//
//   - A review is answered in its own version, with the patch or with the reason why the pod is refused:
//     [TestReviews].
package webhook
