// Package faults puts a proxy between a client and a kube-apiserver that does to requests what bad days do: it cuts
// watches, delays, refuses, answers with errors, drops off the network; and it counts what was asked, by whom and when.
//
// The proxy ends TLS with a certificate of the cluster's authority and passes credentials on, so that a client needs
// nothing but another address. It speaks HTTP/2 and HTTP/1.1 to both sides. What it does is deterministic: a share of
// requests is every nth, not a random one.
//
// A Proxy is owned by whoever started it, who calls Close. It runs one goroutine that accepts, one that cuts watches
// while that is asked for, and those of net/http; all end with Close. Its methods may be called from any goroutine.
package faults
