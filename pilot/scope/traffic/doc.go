// Package traffic merges the DestinationRules of one host: which subsets the host has, and which traffic policy is in
// force for a port and subset. The feature pilot/feature/destinationrule applies a policy to clusters and routes.
// placement.go says which rules prefer endpoints by location, which package eds implements. The package is pure and
// does not depend on Envoy.
package traffic
