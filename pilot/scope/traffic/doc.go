// Package traffic merges the DestinationRules of one host: which subsets the host has, and which traffic policy is in
// force for a port and subset. What a policy makes of clusters and routes is the feature's
// (pilot/feature/destinationrule). placement.go says which rules prefer endpoints by where they run; package eds
// follows them. The package is pure and knows no Envoy.
package traffic
