// Package schema checks objects by the CustomResourceDefinitions of their kinds, as an API server does: types, enums,
// lengths, formats, keys of lists and CEL rules. It uses the API server's own library.
//
// The definitions are embedded in schemas.zip, which `make gen` generates from the modules that go.mod pins: Istio's
// API, the standard channel of the Gateway API with XBackendTrafficPolicy, and the Multi-Cluster Services API.
//
// A definition is compiled when the first object of its kind is checked, and kept until Forget. Compiling takes some
// ten milliseconds and one to five megabytes for each kind. A Set may be used from any goroutine; it starts none.
//
// # Guarantees
//
//   - An object that an API server would refuse by its CustomResourceDefinition is refused in a file:
//     [TestEveryKindHasADefinition], [TestCheck], [TestSetIsShared]. The definitions are those of the pinned modules:
//     [deploy/crds.TestSchemasAreUpToDate].
package schema
