// Package destinationrule translates DestinationRules: which subsets a service has, which traffic policy is in force
// for a port and subset, and what that policy makes of a cluster and of the routes to it. It is pure.
package destinationrule
