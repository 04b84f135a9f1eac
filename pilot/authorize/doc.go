// Package authorize decides what a peer may do: open a stream as a proxy, read configuration or debug pages, register a
// workload, receive a secret.
//
// It is the only place that decides so. Whoever serves a peer asks here, with the identity.Peer that it authenticated,
// and turns a Denied into its protocol's own refusal. What is not allowed is denied. The package is pure.
package authorize
