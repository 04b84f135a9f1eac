// Package featuretest checks features by goldens that people can review: testdata/*.txtar in the folder of each
// feature. A golden begins with its purpose, and has these files:
//
//   - input.yaml: objects. input.mesh.yaml: the mesh configuration. input.policy: COMPLIANCE_POLICY. Without all of
//     them the input is the feature itself.
//   - world.yaml: objects that exist without the input too, beside those of world.yaml in this folder.
//   - mesh.yaml: the mesh configuration without the input. Without the file there is no tracing.
//   - NAME.json: the node of a proxy, beside the proxies of all Pods. proxies: the proxies to show. Without it, all are
//     shown.
//   - findings: the findings that the input adds.
//   - changes: how the input changes each resource, and for which proxies. Parts that differ are shown with the values
//     that contain them, and items of lists with their neighbours.
//
// A real Envoy in validation mode checks the resources with the input.
//
// Configuration is read and translated as in the server, with all features of the catalog. -update rewrites findings
// and changes. Only tests import the package.
//
// # Guarantees
//
// - A golden shows every resource that the input changes, and how: [TestDiff].
package featuretest
