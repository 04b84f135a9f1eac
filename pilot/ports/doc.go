// Package ports opens the ports of the server, serves them and closes them.
//
//   - ports.go: Ports, which listen and serve.
//   - http.go: HTTP servers with a bound on every phase of a request, and gRPC on the port of an HTTP server.
//   - grpc.go: gRPC servers.
//   - addresses.go: what listens, as a file for other processes.
//
// State: the open ports, under the lock of Ports. Each port has a goroutine until it is closed.
package ports
