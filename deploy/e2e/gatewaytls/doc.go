// Package gatewaytls tests gateways that terminate TLS, and what they call by TLS: a real Envoy gets the certificates
// of Secrets from the control plane, over a stream on which it proves who it is.
package gatewaytls
