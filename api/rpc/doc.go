// Package rpc has the interceptors of all gRPC servers. They count calls in the usual metrics of gRPC, and turn a panic
// in a handler into an internal error for its client. It runs no goroutine.
package rpc
