// Package namespaces holds what the registries read of Namespace objects: the network of the cluster, from the label of
// the system namespace, and the traffic distribution that an annotation sets for all services of a namespace.
//
// A Table is owned by one registry and used by its goroutine alone.
package namespaces
