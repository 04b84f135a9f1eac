// Package cluster runs the API of a Kubernetes cluster for tests: a real etcd and a real kube-apiserver, on ports of
// loopback that are picked free, with RBAC, ServiceAccount tokens and a certificate authority of its own. Tests fill it
// with YAML and hurt it: kill, stop, restart, forget history.
//
// No node, controller, scheduler or DNS runs. What controllers would do is in the YAML of a test (EndpointSlices, the
// status of Pods), but for three things: a namespace, its ServiceAccount default and the ServiceAccounts that Pods name
// come into being when something needs them; a namespace that is deleted takes what is in it along; and
// CustomResourceDefinitions are waited for.
//
// It needs no root and works as well inside the namespaces of package pods. The binaries come from `make tools`.
//
// A Cluster is owned by whoever started it, who calls Stop; the two processes end with this one, whatever ends it. It
// runs two goroutines, each of which waits for one process. Its methods may be called from any goroutine, but those
// that start, stop and hurt processes from one at a time.
package cluster
