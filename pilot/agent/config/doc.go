// Package config reads the configuration of an agent as typed values: from arguments, the environment, and the files
// that are mounted into a pod. It reports settings that have no effect.
//
//   - config.go: Read and Config
//   - proxyconfig.go: the ProxyConfig, which is merged from the mesh's default, PROXY_CONFIG, the annotation of the
//     pod, and arguments and environment. Each layer has precedence over the layers before it.
//   - node.go: Envoy's node with its metadata
//   - security.go: where certificates and tokens come from
//   - environment.go: variables as numbers, durations and booleans
//
// It has no state, starts no goroutine and reads no environment other than the one in Source.
//
// # Guarantees
//
//   - The annotation of a pod takes precedence over PROXY_CONFIG, and that over the mesh's default: [TestPrecedence].
//     Annotations for one setting take precedence over all of them: [TestSingleAnnotations]. A wrong value is named,
//     with the right spelling: [TestRefused], [TestFindings]. A host without POD_NAME is known by its own name:
//     [TestVirtualMachine].
package config
