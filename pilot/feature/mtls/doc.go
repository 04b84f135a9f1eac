// Package mtls translates PeerAuthentication: which mode a port is in, and the TLS contexts with which sidecars talk to
// each other.
//
// Certificates and roots are named, never held: the agent beside the proxy serves them. It is pure.
package mtls
