// Package namespaces keeps what the registries read of Namespace objects: the network of the cluster, which the label of the system namespace names, and the
// traffic distribution that an annotation gives to all services of a namespace.
//
// A Table is owned by one registry, and is called by its goroutine alone.
package namespaces
