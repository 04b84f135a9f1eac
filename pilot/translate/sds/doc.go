// Package sds makes the secrets that proxies subscribe to by name: certificates with their keys, and CA certificates,
// of the Secrets and ConfigMaps that Gateways and DestinationRules name.
//
// A proxy gets what a Gateway that selects it names, or a DestinationRule. Whether it may have anything of a namespace
// is decided elsewhere: by package authorize before it subscribes, and by a review of its service account's access,
// until which its stream is sent none (pilot/xds, secrets.go). What cannot be used has been left out before the
// Snapshot. The package is pure.
//
// The way of a secret: api/credentials says which an object names, lds/servertls.go has the listener name it,
// xds/secrets.go looks whether the peer may ask, ingest/demand.go has config/crd/wanted.go read it,
// ingest/credentials.go keeps the last good content, this package makes the resource, and session/grants.go says when
// it may go out.
package sds
