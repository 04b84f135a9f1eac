// Package apiserver asks an API server questions of one request, such as its version or a review of a token. What an
// answer may cost is bounded: at most 1 MiB of it is read, and it leads to no other server.
package apiserver
