// Package derive is the contract of stages. A stage derives objects from objects: VirtualServices and Gateways from
// objects of the Gateway API, or from Ingresses.
//
// A stage is a folder below this one, and a line of catalog.Stages. Its kinds join those with a reader in
// catalog_test.go. Its function New returns a Stage, which names the kinds that it derives from. Each run gets the
// changes of their objects, and of objects that the stage looked up. It returns the changed parts of the derivation, so
// that the cost of a run is proportional to the change. Whole makes a stage from a function that derives everything in
// each run, for few objects.
//
// A part holds derived objects, each with the object from which it was made, findings, and the wanted statuses of
// objects. A stage divides its output into parts as it likes. pilot/ingest runs the stages, after the filter and before
// the registries. stage_test.go there has two small examples. pilot/status writes the statuses. A stage makes findings
// for fields that it does not support. A derived object needs a name that no user would choose, because an object of a
// user with the same name hides it. derivetest runs a stage in tests.
//
// The stages are ingress and gatewayapi.
//
// External input comes to a stage as an object. The package is pure.
package derive
