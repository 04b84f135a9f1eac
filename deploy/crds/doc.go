// Command crds writes the CustomResourceDefinitions of Istio's API from the pinned istio.io/api module to a directory,
// one file each. Names, schemas and rules are unchanged. Descriptions are left out, because they are two thirds of the
// bytes, which every API server and every Helm release would carry.
//
// It also writes the schemas, with those of the Gateway API and of the Multi-Cluster Services API, to the archive that
// galley/validation/schema embeds.
//
// `make gen` runs it from the root of the tree.
//
// # Guarantees
//
//   - The definitions in the chart are those of the pinned module: [TestChartIsUpToDate].
package main
