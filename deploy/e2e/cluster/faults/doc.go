// Package faults is a proxy between a client and a kube-apiserver that adds faults: it cuts watches, delays, refuses,
// answers with errors, and drops packets. It records the requests with their identity and time.
//
// The proxy terminates TLS with a certificate of the cluster's authority and passes credentials on, so a client needs
// only another address. It speaks HTTP/2 and HTTP/1.1 to both sides. It is deterministic: a share of requests is every
// nth one, not a random one.
//
// The caller of Start owns the Proxy and must call Close. It runs one goroutine that accepts, one that cuts watches
// while that is enabled, and those of net/http. All end with Close. Its methods may be called from any goroutine.
package faults
