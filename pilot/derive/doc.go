// Package derive is the contract of stages. A stage derives objects from objects: VirtualServices and Gateways from
// those of the Gateway API, or from Ingresses.
//
// A stage is a folder below this one, and a line of catalog.Stages. Its kinds join those that have a reader in
// catalog_test.go. Its New returns a Stage, which names
// the kinds that it gets whole and derives all its objects anew when one of them changed, or one that it looked up. It
// says of each object what it was made of, and what the status of an object should be. pilot/ingest runs the stages,
// behind the filter and before the registries; stage_test.go there has two small ones. pilot/status writes the
// statuses. Fields that a stage does not support are findings of its own. A derived object needs a name that no user
// gives, for a user's object hides it.
//
// The stages are ingress and gatewayapi.
//
// What a stage needs of I/O comes to it as an object. The package is pure.
package derive
