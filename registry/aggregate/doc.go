// Package aggregate makes one registry of several: the one of Kubernetes, whose workloads ServiceEntries may select, and the one of ServiceEntries.
//
// Where both have a service of one namespace and host, the service is that of Kubernetes and its endpoints are those of both.
// A Registry is owned by one goroutine, like the registries that it holds; it starts none.
package aggregate
