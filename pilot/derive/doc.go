// Package derive is the contract of stages. A stage derives objects from objects: VirtualServices and Gateways from
// those of the Gateway API, or from Ingresses.
//
// A stage is a folder below this one, and a line of catalog.Stages. Its kinds join those that have a reader in
// catalog_test.go. Its New returns a Stage, which names the kinds that it derives from. Each run gets the changes of
// their objects, and of those that the stage looked up. It returns the parts of the derivation that have changed by
// them. So a run costs as much as there is to do. Whole makes a stage of a function that derives everything anew, for
// few objects.
//
// A part has derived objects, each with what it was made of, findings, and what the statuses of objects should be. How
// a stage divides what it makes into parts is its own affair. pilot/ingest runs the stages, behind the filter and
// before the registries; stage_test.go there has two small ones. pilot/status writes the statuses. Fields that a stage
// does not support are findings of its own. A derived object needs a name that no user gives, for a user's object hides
// it. derivetest runs a stage in tests.
//
// The stages are ingress and gatewayapi.
//
// What a stage needs of I/O comes to it as an object. The package is pure.
package derive
