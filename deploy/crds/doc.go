// Command crds writes the CustomResourceDefinitions of Istio's API from the pinned istio.io/api module into a
// directory, one file each: names, schemas and rules as they are, without descriptions: a third of the bytes, which
// every API server and every Helm release would carry.
//
// It also writes the schemas alone, with those of the Gateway API, into the archive that galley/validation/schema
// embeds.
//
// `make gen` runs it for charts/base and galley/validation/schema. It holds no state, starts no goroutine, and writes
// the same bytes for the same modules.
//
// # Guarantees
//
//   - The definitions in the chart are those of the pinned module: [TestChartIsUpToDate].
package main
