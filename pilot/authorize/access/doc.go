// Package access finds out whether service accounts may list the Secrets of their namespace, by SubjectAccessReviews
// that it sends to API servers (review.go).
//
// An answer may be used for a short time. While an identity is watched, it is reviewed again and again, so that a
// withdrawn permission soon ends. A review that fails changes nothing: an allowed identity stays allowed, and no other
// becomes allowed until a review succeeds. Failures are not cached. The review is repeated after a short while.
//
// State: the reviews of watched identities, under a lock. Goroutines: Run, and one for each review in progress.
//
// # Guarantees
//
//   - Only a service account that may list the Secrets of its namespace gets them, a withdrawn right ends soon, and a
//     cluster that hangs grants nothing: [TestReviews], [TestClusterThatHangs].
package access
