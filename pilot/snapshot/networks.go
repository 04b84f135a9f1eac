package snapshot

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Networks are the gateways and address ranges of the mesh's networks. It is immutable. A nil Networks has none.
type Networks struct {
	Ranges frozen.List[string] // CIDRs of the mesh's networks, sorted

	gateways []registry.Gateway
	targets  map[NetworkCluster]frozen.List[registry.Gateway]
}

func newNetworks(gateways []registry.Gateway, ranges []string) *Networks {
	if len(gateways)+len(ranges) == 0 {
		return nil
	}
	n := &Networks{Ranges: frozen.ListOf(ranges...), gateways: gateways, targets: map[NetworkCluster]frozen.List[registry.Gateway]{}}
	lists := map[NetworkCluster][]registry.Gateway{}
	for _, g := range gateways {
		lists[NetworkCluster{Network: g.Network}] = append(lists[NetworkCluster{Network: g.Network}], g)
		if g.Cluster != "" {
			lists[NetworkCluster{g.Network, g.Cluster}] = append(lists[NetworkCluster{g.Network, g.Cluster}], g)
		}
	}
	for to, list := range lists {
		n.targets[to] = frozen.ListOf(list...)
	}
	return n
}

func (n *Networks) equal(gateways []registry.Gateway, ranges []string) bool {
	if n == nil {
		return len(gateways)+len(ranges) == 0
	}
	return slices.Equal(n.gateways, gateways) && n.Ranges == frozen.ListOf(ranges...)
}

// Gateways returns all gateways, sorted. The caller must not modify the slice.
func (n *Networks) Gateways() []registry.Gateway {
	if n == nil {
		return nil
	}
	return n.gateways
}

// GatewaysTo returns the gateways to a cluster's part of a network: the cluster's own gateways, or else all of the
// network's. It returns none for an unknown network.
func (n *Networks) GatewaysTo(network, cluster string) frozen.List[registry.Gateway] {
	if n == nil || network == "" {
		return frozen.List[registry.Gateway]{}
	}
	if own := n.targets[NetworkCluster{network, cluster}]; cluster != "" && !own.Empty() {
		return own
	}
	return n.targets[NetworkCluster{Network: network}]
}

// SetNetworks replaces the gateways and ranges. Both lists must be sorted and have only IP addresses. The caller must
// not modify them afterwards.
func (b *Builder) SetNetworks(gateways []registry.Gateway, ranges []string) {
	if !b.networks.equal(gateways, ranges) {
		b.networks = newNetworks(gateways, ranges)
		b.markFull("networks", "gateways of networks")
	}
}
