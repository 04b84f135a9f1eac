// Package authz makes the filters that deny everything to workloads which authorization policies select.
//
// This version does not translate AuthorizationPolicy and RequestAuthentication. Leaving their filters out would open
// what they close. So every request to a selected workload is refused, and a finding names the policy. The package is
// pure.
package authz
