// Package trust hands out what workloads verify certificates with: ConfigMaps of the same content in many namespaces,
// such as istio-ca-root-cert, which holds the roots of the mesh.
//
// A Publisher reads the ConfigMaps of those names, and writes those that are missing or differ. Whatever else is in
// them stays. It writes nothing that is equal, so nobody who watches them is woken in vain. What cannot be written is
// tried again, and holds up no other namespace.
//
// State: a Publisher's, under its lock. Run writes from its own goroutine, one ConfigMap at a time, while its source
// runs in another. It is to run at one replica at a time (package leader).
package trust
