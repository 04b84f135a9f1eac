// Package names formats and parses the names of clusters, listeners, routes and virtual hosts, and the domains by which
// a virtual host is called. Tools read these names (istioctl, Kiali, dashboards), so they are part of the contract.
// Everything here is a pure function of its arguments. It also has the keys of all labels and annotations (labels.go,
// keys.go).
//
// # Guarantees
//
//   - A Secret with the suffix -cacert never replaces a CA that an object names itself: [TestNamedCACredential].
package names
