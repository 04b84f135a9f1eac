// Package echo is the program that stands in for every service of the samples and the end-to-end tests: it answers
// HTTP/1.1, HTTP/2 without TLS and gRPC on one port and lines of TCP on another, says who it is, and can call other
// services first.
//
// It opens no sockets: listeners and the way to dial come from the caller. Serve functions run until their listener is
// closed.
package echo
