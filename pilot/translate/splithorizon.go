package translate

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// networkPath says how a client comes to what one cluster has in another network: through gateways, or, without any, not at all.
type networkPath struct {
	network, cluster string
	gateways         frozen.List[registry.Gateway]
}

// networkPaths lists those between a cohort and endpoints: none for endpoints that it calls as they are, which are those of its own network, of networks that nobody
// knows, and of networks without a gateway.
func (v *view) networkPaths(c cohort.Scope, sites []snapshot.NetworkCluster) frozen.List[networkPath] {
	if v.Networks == nil && c.NetworkView.Empty() {
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
		if path.gateways = v.Networks.GatewaysTo(e.Network, e.Cluster); !path.gateways.Empty() {
			list = append(list, path)
		}
	}
	return frozen.ListOf(list...)
}

// requestsNetwork tells that a cohort wants the endpoints of a network: without a view of its own it wants all, and those of no network it always wants.
func requestsNetwork(c cohort.Scope, network string) bool {
	if c.NetworkView.Empty() || network == "" {
		return true
	}
	for n := range c.NetworkView.All {
		if n == network {
			return true
		}
	}
	return false
}

// splitHorizon is the crossings of one assignment at work. Endpoints behind gateways become those gateways: each has an equal part of their weight.
type splitHorizon struct {
	gateways map[networkPath][]registry.Gateway // by network and cluster; no gateways: out of reach
	scale    uint64                             // what all weights are multiplied by, so that the parts are whole
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

// maxScale keeps weights small, so that few sums of them have to be scaled down again.
const maxScale = 1 << 10

func lcm(a, b uint64) uint64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// path gives the gateways before an endpoint; crosses: it is not called as it is.
func (b *splitHorizon) path(e *registry.Endpoint) (gateways []registry.Gateway, crosses bool) {
	if b.gateways == nil {
		return nil, false
	}
	gateways, crosses = b.gateways[networkPath{network: e.Network, cluster: e.Cluster}]
	return gateways, crosses
}

// weight is that of an endpoint.
func (b *splitHorizon) weight(e *registry.Endpoint) uint64 { return uint64(max(e.Weight, 1)) * b.scale }
