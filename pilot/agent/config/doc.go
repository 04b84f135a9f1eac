// Package config reads what an agent is told, as typed values: by arguments, the environment, and the files that are
// mounted into a pod. It says what the agent does with them, and what has no effect.
//
//   - config.go: Read, and what it returns
//   - proxyconfig.go: the ProxyConfig: the mesh's default, below PROXY_CONFIG, below the annotation of the pod, below
//     arguments and environment
//   - node.go: the node of Envoy, with its metadata
//   - security.go: where certificates and tokens come from
//   - environment.go: variables as numbers, durations and booleans
//
// It keeps no state, runs no goroutine and reads no environment but the one it is given.
//
// # Guarantees
//
//   - The annotation of a pod takes precedence over PROXY_CONFIG, and that over the mesh's default: [TestPrecedence].
//     A wrong value is named, with the right spelling: [TestRefused], [TestFindings]. A host without POD_NAME is known
//     by its own name: [TestVirtualMachine].
package config
