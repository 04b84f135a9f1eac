// Package readme tries the documents of docs/ that a reader follows with a shell: it pastes every block of commands of
// getting-started.md and connect-your-own-envoy.md into one, with the real Envoy, in a network of its own.
//
// # Guarantees
//
//   - The commands of README.md, docs/getting-started.md and docs/connect-your-own-envoy.md work, with a real Envoy:
//     [TestMeshOfYourOwn].
package readme
