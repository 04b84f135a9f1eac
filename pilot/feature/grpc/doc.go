// Package grpc is the feature of gRPC: gRPC-Web for ports that declare it, and statistics. It is pure.
package grpc
