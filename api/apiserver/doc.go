// Package apiserver sends single requests to an API server, such as for its version or a TokenReview. It reads at most
// 1 MiB of a response, and follows no redirects.
package apiserver
