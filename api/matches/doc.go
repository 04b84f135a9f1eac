// Package matches decides whether every request that one match takes is also taken by another. It says so only if it is
// certain: two regular expressions with different texts are rarely compared. Hosts are compared by [names.Covers].
// It is pure. Delegation and findings about routes that are never reached come from this comparison.
//
// # Guarantees
//
//   - No request is taken by a contained match alone: [TestRequests], [TestTexts].
//   - An Index finds what a comparison with each of its requests finds, and the first of them: [TestIndex].
package matches
