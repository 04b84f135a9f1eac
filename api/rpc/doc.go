// Package rpc has the interceptors of every gRPC server: metrics under the names that dashboards of gRPC read, and the
// end of a panic in a handler, which is an internal error for its client. It runs no goroutine.
package rpc
