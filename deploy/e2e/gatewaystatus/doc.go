// Package gatewaystatus compares the statuses of the Gateway API's objects with those that the real istiod writes, on a
// real API server: which generation each condition has observed, also after a change of the specification. What
// conditions say is compared in pilot/derive/gatewayapi, with recordings.
//
// Its test has the tag compat, for it needs Istio's own istiod.
package gatewaystatus
