// Package sds makes the secrets to which proxies subscribe by name: certificates with their keys, and CA certificates,
// from the Secrets and ConfigMaps that Gateways and DestinationRules name.
//
// A proxy gets a secret if a Gateway that selects it, or a DestinationRule, names it. Other packages decide whether it
// may have secrets of a namespace: package authorize before it subscribes, and a review of its service account's
// access, until which its stream is sent none (pilot/xds, secrets.go). Unusable secrets are removed before the
// Snapshot. The package is pure.
//
// The path of a secret: api/credentials says which one an object names, lds/servertls.go names it in a listener,
// xds/secrets.go checks whether the peer may ask, ingest/demand.go lets config/crd/wanted.go read it,
// ingest/credentials.go keeps the last good content, this package makes the resource, and session/grants.go says when
// it may be sent.
package sds
