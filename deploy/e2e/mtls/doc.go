// Package mtls tests mutual TLS between real Envoys whose certificates come from the control plane: a small client in
// the agent's place proves who it is by a token, has a certificate signed, and gives it to its Envoy.
package mtls
