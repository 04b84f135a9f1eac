// Package sds serves certificates to Envoys that have no agent, as the agent would. It is a secret discovery service.
// Each proxy gets the roots, and a certificate for the namespace and service account that its node names. An Issuer
// signs them; by itself the service has a CA of its own.
//
// It believes whatever a node says: it is for tests alone. A Server runs the goroutines of gRPC, which end with Stop.
package sds
