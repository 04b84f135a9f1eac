// Package node plays, for a cluster of package cluster, the parts of Kubernetes that are not there: the controllers
// of Deployments, ReplicaSets, Jobs, EndpointSlices, namespaces, load balancers and garbage, and one node with its
// kubelet, its kube-proxy and the cluster's DNS. Manifests that were written for a cluster run on it as they are.
//
//   - node.go: the loop, which brings everything into order whenever something has changed; what it follows.
//   - deployments.go, replicasets.go, jobs.go, services.go, namespaces.go: the controllers.
//   - pod.go, volumes.go, environment.go, container.go, probes.go: the kubelet: a pod is a network namespace of package
//     pods, a container is a process with a root directory of its own.
//   - api.go: what the API server asks a kubelet for: exec and logs; what tests ask for: signals and connections.
//   - dns.go, proxy.go: the names of Services, and their addresses for clients without an Envoy.
//
// Images are a table: which files are in it, and the program that runs. The folder contain has the small program that
// makes the root directory of a container and then becomes the container's; meshecho is an application.
//
// What differs from a real node: all containers run as the one user that there is, so an Envoy is known to the rules of
// its pod by a mark and not by its user; its agent's own connections to the control plane are left alone by port.
// Limits, capabilities, affinity and rolling updates in steps are not there. A Service of type LoadBalancer has an
// address that leads to its first ready pod, and only this program's own namespace has a route to it.
//
// State: a Node's, in its loop, and under the lock of each pod. It runs the loop, the informers' goroutines, one for
// each pod and one for each output of a container, one for each port of a Service, and those of its servers; all end
// with Stop.
package node
