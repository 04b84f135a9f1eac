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
// if there are none.
type networkPath struct {
	network, cluster string
	gateways         frozen.List[registry.Gateway]
}

// networkPaths returns the paths from a cohort to the networks and clusters of some endpoints. There is none for
// endpoints that the cohort calls directly: in its own network, in an unknown network, and in a network without a
// gateway.
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

// splitHorizon replaces the endpoints of other networks in one assignment by the gateways to them. The gateways share
// an endpoint's weight equally.
type splitHorizon struct {
	// gateways has the networks and clusters whose endpoints are not called directly. An empty list means that the
	// endpoints are out of reach.
	gateways map[snapshot.NetworkCluster][]registry.Gateway
	scale    uint64 // factor for all weights, so that shares are whole numbers
}

func newSplitHorizon(paths frozen.List[networkPath]) *splitHorizon {
	b := &splitHorizon{scale: 1}
	for c := range paths.All {
		if b.gateways == nil {
			b.gateways = map[snapshot.NetworkCluster][]registry.Gateway{}
		}
		gateways := slices.Collect(c.gateways.All)
		b.gateways[snapshot.NetworkCluster{Network: c.network, Cluster: c.cluster}] = gateways
		if n := uint64(len(gateways)); n > 0 {
			if b.scale = lcm(b.scale, n); b.scale > maxScale {
				b.scale = 1 // the shares are rounded up
			}
		}
	}
	return b
}

// maxScale limits the factor, so that few sums of weights have to be scaled down again.
const maxScale = 1 << 10

func lcm(a, b uint64) uint64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// path returns the gateways for an endpoint. crosses reports whether it is behind gateways or out of reach, and so is
// not called directly.
func (b *splitHorizon) path(e *registry.Endpoint) (gateways []registry.Gateway, crosses bool) {
	if b.gateways == nil {
		return nil, false
	}
	gateways, crosses = b.gateways[snapshot.NetworkCluster{Network: e.Network, Cluster: e.Cluster}]
	return gateways, crosses
}

// add adds an endpoint, or the gateways to it, which share its weight, to a group. Gateways route by the server name of
// mTLS. So an endpoint that does not accept mTLS is left out if it is behind a gateway, or if the client forwards by
// the server name. An unhealthy endpoint behind a gateway is left out too, because the gateway knows the health of its
// endpoints.
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
