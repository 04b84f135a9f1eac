// Package authz guards workloads that authorization policies select.
//
// This version does not translate AuthorizationPolicy and RequestAuthentication. To leave their filters out would open what they close, so whatever they
// select is closed: every request is refused, and a finding says why. It is pure.
package authz
