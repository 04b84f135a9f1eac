package session

import "github.com/istiod-lite/istiod-lite/pilot/envoy"

// Costs of a name that a client subscribes to, in bytes of memory.
const (
	nameCost  = 80      // beside its text: its place in lists, in the list by hosts, and in what is not acknowledged
	routeCost = 3 << 10 // of a route configuration, which is made for each name, whether or not there is one
)

// CostOfNames returns about how many bytes of memory the names take that a client subscribes to of a type, with what is
// kept of a name for which there is no resource.
func CostOfNames(kind *envoy.Type, n *envoy.Names) int {
	each := nameCost
	if kind.URL == envoy.RouteType {
		each += routeCost
	}
	return n.Bytes() + n.Len()*each
}
