// Package aggregate makes one registry of several: one of Kubernetes for each cluster, whose workloads ServiceEntries may select, and the one of ServiceEntries.
//
// Changes go to the registry of the cluster that their key names; the first makes it, and it is gone with the last of its objects. ServiceEntries are read
// from the server's own cluster alone, and select the workloads of every cluster.
//
// Where several clusters have a service of one namespace and host, it is one service: it is what the own cluster says, else the first by ID, its service
// accounts and endpoints are those of all, and it keeps each cluster's version, for addresses and target ports are a cluster's own.
// Where Kubernetes and ServiceEntries both have one, the service is that of Kubernetes and its endpoints are those of both.
//
// A Registry is owned by one goroutine, like the registries that it holds; it starts none.
package aggregate
