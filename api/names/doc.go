// Package names formats and parses the names of clusters, listeners, routes and virtual hosts, and the domains of a
// virtual host. Tools such as istioctl, Kiali and dashboards parse these names, so they are a public interface. All
// functions are pure. The package also defines the keys of all labels and annotations (labels.go, keys.go), and the
// names of Leases (leases.go).
//
// # Guarantees
//
//   - A Secret with the suffix -cacert never replaces a CA that an object names itself: [TestNamedCACredential].
//   - A cycle of aliases ends: [TestFollowAliases].
package names
