// Package grpc holds end-to-end tests of applications that use xDS themselves, without a proxy: real clients and
// servers of grpc-go with a control plane of their own, and certificates of its authority in files.
package grpc
