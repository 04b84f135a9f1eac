// Package peermetadata is the feature by which proxies exchange their workloads' metadata: in HTTP headers, and at the
// start of TCP connections. A proxy gets the filters that it lists as its capabilities. The package is pure.
package peermetadata
