// Package featuretest checks features by goldens that people can review: testdata/*.txtar in the folder of each
// feature. A golden says what it shows, and has these files:
//
//   - input.yaml: objects. input.mesh.yaml: the mesh configuration. Without both the input is the feature itself.
//   - world.yaml: objects that are there without the input too, beside those of world.yaml in this folder.
//   - mesh.yaml: the mesh configuration without the input; without the file there is no tracing.
//   - NAME.json: the node of a proxy, beside the proxies of all Pods. proxies: those that are shown; without it, all.
//   - findings: what is found with the input and not without it.
//   - changes: how each resource differs, with the input, from what it is without, and for which proxies. The parts
//     that differ are shown with what they are nested in, and the items of lists with those beside them.
//
// A real Envoy is asked, in its validation mode, whether it takes what is sent with the input.
//
// Configuration is read and translated like the server's, with all features of the catalog. findings and changes are
// written anew with -update. Only tests import the package.
//
// # Guarantees
//
//   - A golden shows every resource that the input changes, and how: [TestDiff].
package featuretest
