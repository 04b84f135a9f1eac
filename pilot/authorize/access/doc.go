// Package access finds out whether service accounts may list the Secrets of their namespace, where that takes a
// question to an API server: a SubjectAccessReview (review.go).
//
// An answer counts for a moment. While somebody watches an identity, it is asked again and again, so that what was
// withdrawn ends soon. A question that fails changes nothing: who was allowed is, and nobody is allowed anew until
// there is an answer. Failures are not kept, but asked again after a short while.
//
// State: what is known of identities that are watched, under a lock. Goroutines: Run, and one for each open question.
//
// # Guarantees
//
//   - Only a service account that may list the Secrets of its namespace gets them, a withdrawn right ends soon, and a
//     cluster that hangs grants nothing: [TestReviews], [TestClusterThatHangs].
package access
