package session

import "github.com/istiod-lite/istiod-lite/pilot/envoy"

// Memory in bytes for a name that a client subscribes to.
const (
	nameCost  = 80      // besides its text: entries in lists, in the index by host, and in unacknowledged responses
	routeCost = 3 << 10 // of a route configuration, which is made for each name, even an unknown one
)

// CostOfNames returns the approximate memory in bytes of the names that a client subscribes to of a type, including the
// memory for names without a resource.
func CostOfNames(kind *envoy.Type, n *envoy.Names) int {
	each := nameCost
	if kind.URL == envoy.RouteType {
		each += routeCost
	}
	return n.Bytes() + n.Len()*each
}
