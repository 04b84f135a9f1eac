package snapshot

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Networks says how the networks of the mesh are entered. It is frozen; nil is a mesh about whose networks nobody says anything.
type Networks struct {
	Ranges frozen.List[string] // CIDRs that belong to networks of the mesh, sorted

	gateways []registry.Gateway
	into     map[way]frozen.List[registry.Gateway]
}

// way leads into a network; with a cluster, by that cluster's gateways.
type way struct{ network, cluster string }

func newNetworks(gateways []registry.Gateway, ranges []string) *Networks {
	if len(gateways)+len(ranges) == 0 {
		return nil
	}
	n := &Networks{Ranges: frozen.ListOf(ranges...), gateways: gateways, into: map[way]frozen.List[registry.Gateway]{}}
	ways := map[way][]registry.Gateway{}
	for _, g := range gateways {
		ways[way{network: g.Network}] = append(ways[way{network: g.Network}], g)
		if g.Cluster != "" {
			ways[way{g.Network, g.Cluster}] = append(ways[way{g.Network, g.Cluster}], g)
		}
	}
	for w, list := range ways {
		n.into[w] = frozen.ListOf(list...)
	}
	return n
}

func (n *Networks) equal(gateways []registry.Gateway, ranges []string) bool {
	if n == nil {
		return len(gateways)+len(ranges) == 0
	}
	return slices.Equal(n.gateways, gateways) && n.Ranges == frozen.ListOf(ranges...)
}

// Gateways gives all of them, sorted. The caller must not change the slice.
func (n *Networks) Gateways() []registry.Gateway {
	if n == nil {
		return nil
	}
	return n.gateways
}

// GatewaysTo gives the gateways to what a cluster has in a network: the cluster's own, else all of the network; none for endpoints whose network nobody knows.
func (n *Networks) GatewaysTo(network, cluster string) frozen.List[registry.Gateway] {
	if n == nil || network == "" {
		return frozen.List[registry.Gateway]{}
	}
	if own := n.into[way{network, cluster}]; cluster != "" && !own.Empty() {
		return own
	}
	return n.into[way{network: network}]
}

// SetNetworks replaces the ways into networks. Both lists are sorted, without names that are still to be resolved, and are not changed any more.
func (b *Builder) SetNetworks(gateways []registry.Gateway, ranges []string) {
	if !b.networks.equal(gateways, ranges) {
		b.networks = newNetworks(gateways, ranges)
		b.full("networks", "gateways of networks")
	}
}
