// Package sds issues certificates to Envoys that have no agent, as the agent would. It is a secret discovery service
// that issues each proxy one for the identity that its node names, signed by a CA of its own, and the root.
//
// It believes whatever a node says: it is for tests alone. A Server runs the goroutines of gRPC, which end with Stop.
package sds
