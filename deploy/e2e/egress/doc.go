// Package egress shows, with a real Envoy beside an application, how calls leave the mesh whose hosts are resolved as
// they are called: those of a ServiceEntry with resolution DYNAMIC_DNS, and all of a mesh that lets any out. And how
// calls leave by the egress proxy of a Sidecar.
//
// The names that are called end in .localhost, which Envoy resolves without a server of DNS. Its tests need namespaces
// of users. The package holds nothing else and starts no goroutine.
package egress
