package eds

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// networkPath is how a client reaches the endpoints of one cluster in another network: through gateways, or not at all
// where there are none.
type networkPath struct {
	network, cluster string
	gateways         frozen.List[registry.Gateway]
}

// networkPaths returns the paths from a cohort to the networks and clusters of some endpoints. Endpoints that the
// cohort calls directly have none: those of its own network, of an unknown network, and of a network without a gateway.
func networkPaths(v *view.View, c cohort.Client, sites []snapshot.NetworkCluster) frozen.List[networkPath] {
	if v.Networks() == nil && c.NetworkView.Empty() {
		return frozen.List[networkPath]{}
	}
	var list []networkPath
	for _, e := range sites {
		path := networkPath{network: e.Network, cluster: e.Cluster}
		if !requestsNetwork(c, e.Network) {
			list = append(list, path)
			continue
		}
		if e.Network == c.Network {
			continue
		}
		if path.gateways = v.Networks().GatewaysTo(e.Network, e.Cluster); path.gateways.Empty() {
			continue
		}
		if c.Proxyless {
			path.gateways = frozen.List[registry.Gateway]{} // gRPC sends no server name, by which gateways route
		}
		list = append(list, path)
	}
	return frozen.ListOf(list...)
}

// requestsNetwork reports whether a cohort wants the endpoints of a network. Without a network view it wants all of
// them. Endpoints without a network are always wanted.
func requestsNetwork(c cohort.Client, network string) bool {
	if c.NetworkView.Empty() || network == "" {
		return true
	}
	return lists.Any(c.NetworkView.All, func(n string) bool { return n == network })
}

// splitHorizon is the split horizon of one assignment: the gateways before endpoints of other networks. add replaces
// such an endpoint by its gateways, which share its weight equally.
type splitHorizon struct {
	gateways map[networkPath][]registry.Gateway // by network and cluster; none: out of reach
	scale    uint64                             // multiplies all weights, so that the parts are whole numbers
}

func newSplitHorizon(paths frozen.List[networkPath]) *splitHorizon {
	b := &splitHorizon{scale: 1}
	for c := range paths.All {
		if b.gateways == nil {
			b.gateways = map[networkPath][]registry.Gateway{}
		}
		gateways := slices.Collect(c.gateways.All)
		b.gateways[networkPath{network: c.network, cluster: c.cluster}] = gateways
		if n := uint64(len(gateways)); n > 0 {
			if b.scale = lcm(b.scale, n); b.scale > maxScale {
				b.scale = 1 // the parts are rounded up
			}
		}
	}
	return b
}

// maxScale bounds the factor, so that few sums of weights have to be scaled down again.
const maxScale = 1 << 10

func lcm(a, b uint64) uint64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// path returns the gateways before an endpoint, and reports whether it is behind gateways or out of reach: then it is
// not called directly.
func (b *splitHorizon) path(e *registry.Endpoint) (gateways []registry.Gateway, crosses bool) {
	if b.gateways == nil {
		return nil, false
	}
	gateways, crosses = b.gateways[networkPath{network: e.Network, cluster: e.Cluster}]
	return gateways, crosses
}

// add adds an endpoint to a group of endpoints, or in its place the gateways of path before it, which share its weight.
// Gateways route by the server name of mTLS. So an endpoint that does not take mTLS is left out if it is behind a
// gateway, or if the client is one that forwards by the server name. An endpoint behind a gateway that is not healthy
// is left out too: the gateway knows better.
func (b *splitHorizon) add(g *groupEndpoints, e *registry.Endpoint, gateways []registry.Gateway, crosses, secure, sni bool) {
	switch {
	case !secure && (sni || crosses):
	case !crosses:
		g.direct = append(g.direct, directEndpoint{e, b.weight(e), secure})
	case e.Health == registry.Healthy:
		g.addGateways(gateways, b.weight(e))
	}
}

// weight returns the scaled weight of an endpoint.
func (b *splitHorizon) weight(e *registry.Endpoint) uint64 { return uint64(max(e.Weight, 1)) * b.scale }
