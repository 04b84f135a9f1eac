// Package webhook answers AdmissionReviews of pods with the patch that gives them a proxy, at /inject, and below it
// where the path names the cluster and the network of the pods: /inject/cluster/NAME/net/NAME.
//
// The bounds of requests are those of api/admission, which it shares with the other webhooks. It has no state of its
// own.
//
// # Guarantees
//
//   - A review is answered in its own version, with the patch or with the reason why the pod is refused:
//     [TestReviews].
package webhook
