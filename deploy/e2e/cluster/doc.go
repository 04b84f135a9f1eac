// Package cluster runs the API of a Kubernetes cluster for tests: a real etcd and a real kube-apiserver, on free ports
// of loopback, with RBAC, ServiceAccount tokens and its own certificate authority. Tests fill it with YAML, and can
// kill, stop and restart its processes and remove history.
//
// No node, controller, scheduler or DNS runs. The YAML of a test contains the objects of controllers, such as
// EndpointSlices and the status of Pods. There are three exceptions: namespaces, their ServiceAccount default and the
// ServiceAccounts of Pods are created when needed; the deletion of a namespace deletes its objects; and
// CustomResourceDefinitions are awaited.
//
// It needs no root, and also works inside the namespaces of package pods. The binaries come from `make tools`.
//
// The caller of Start owns the Cluster and must call Stop. The two processes always end with this one. A Cluster runs
// two goroutines, each of which waits for one process. Its methods may be called from any goroutine, except that only
// one goroutine at a time may start, stop or kill processes.
package cluster
