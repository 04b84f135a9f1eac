package translate

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// crossing says how a client comes to what one cluster has in another network: through gateways, or, without any, not at all.
type crossing struct {
	network, cluster string
	gateways         frozen.List[registry.Gateway]
}

// crossings lists those between a cohort and endpoints: none for endpoints that it calls as they are, which are those of its own network, of networks that nobody
// knows, and of networks without a gateway.
func (v *view) crossings(c cohort.Scope, sites []snapshot.NetworkCluster) frozen.List[crossing] {
	if v.Networks == nil && c.NetworkView.Empty() {
		return frozen.List[crossing]{}
	}
	var list []crossing
	for _, e := range sites {
		at := crossing{network: e.Network, cluster: e.Cluster}
		if !views(c, e.Network) {
			list = append(list, at)
			continue
		}
		if e.Network == c.Network {
			continue
		}
		if at.gateways = v.Networks.GatewaysTo(e.Network, e.Cluster); !at.gateways.Empty() {
			list = append(list, at)
		}
	}
	return frozen.ListOf(list...)
}

// views tells that a cohort wants the endpoints of a network: without a view of its own it wants all, and those of no network it always wants.
func views(c cohort.Scope, network string) bool {
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

// border is the crossings of one assignment at work. Endpoints behind gateways become those gateways: each has an equal part of their weight.
type border struct {
	ways  map[crossing][]registry.Gateway // by network and cluster; no gateways: out of reach
	scale uint64                          // what all weights are multiplied by, so that the parts are whole
}

func newBorder(crossings frozen.List[crossing]) *border {
	b := &border{scale: 1}
	for c := range crossings.All {
		if b.ways == nil {
			b.ways = map[crossing][]registry.Gateway{}
		}
		gateways := slices.Collect(c.gateways.All)
		b.ways[crossing{network: c.network, cluster: c.cluster}] = gateways
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

// way gives the gateways before an endpoint; crosses: it is not called as it is.
func (b *border) way(e *registry.Endpoint) (gateways []registry.Gateway, crosses bool) {
	if b.ways == nil {
		return nil, false
	}
	gateways, crosses = b.ways[crossing{network: e.Network, cluster: e.Cluster}]
	return gateways, crosses
}

// weight is that of an endpoint.
func (b *border) weight(e *registry.Endpoint) uint64 { return uint64(max(e.Weight, 1)) * b.scale }
