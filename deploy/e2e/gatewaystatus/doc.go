// Package gatewaystatus compares the statuses of the Gateway API's objects with the statuses that the real istiod
// writes, on a real API server: which generation each condition has observed, also after a change of the specification.
// pilot/derive/gatewayapi compares the content of conditions, with recordings.
//
// Its test has the tag compat, because it needs the real istiod.
package gatewaystatus
