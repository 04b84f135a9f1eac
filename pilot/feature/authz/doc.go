// Package authz is the feature of authorization policies. Its filters deny everything to the workloads that
// AuthorizationPolicies and RequestAuthentications select.
//
// This version does not translate these policies. Leaving their filters out would open what they close. So every
// request to a selected workload is refused, and a finding names the policy. The package is pure.
package authz
