// Package echo is the server behind every service of the samples and the end-to-end tests. It answers HTTP/1.1, HTTP/2
// without TLS and gRPC on one port and lines of TCP on another. It says its name, and can call other services first.
//
// It opens no sockets: the caller provides listeners and the way to dial. Serve functions run until their listener is
// closed.
package echo
