// Package proxy runs a real Envoy as the sidecar or gateway of a pod: it writes the bootstrap that an agent would
// write, starts the process and reads its admin API.
//
// There is no agent beside it, hence no certificates but those of an SDS server that Options name (see package sds). A
// Proxy is owned by whoever started it and runs one goroutine, which waits for the process to end.
package proxy
