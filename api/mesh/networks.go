package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// Networks assigns endpoints to networks, and defines how the networks of the mesh reach each other. nil stands for no
// networks.
type Networks struct {
	*meshv1alpha1.MeshNetworks
}

// Equal reports whether both have the same content.
func (n *Networks) Equal(o *Networks) bool {
	if n == nil || o == nil {
		return n == o
	}
	return proto.Equal(n.MeshNetworks, o.MeshNetworks)
}

// Gateway is an entrance to a network: at an address, which is an IP or a host name, or at the addresses of a service.
type Gateway struct {
	Network          string
	Address, Service string // exactly one is set; Service is a host name
	Port             uint32
}

// Gateways lists the gateways at addresses, by network name.
func (n *Networks) Gateways() []Gateway {
	return n.gateways(func(_ *meshv1alpha1.Network, g *meshv1alpha1.Network_IstioNetworkGateway) bool {
		return g.GetAddress() != ""
	})
}

// Services lists the gateways that are services of the cluster with an ID. A network looks for its services in its own
// clusters.
func (n *Networks) Services(cluster string) []Gateway {
	return n.gateways(func(of *meshv1alpha1.Network, g *meshv1alpha1.Network_IstioNetworkGateway) bool {
		in := func(e *meshv1alpha1.Network_NetworkEndpoints) bool { return e.GetFromRegistry() == cluster }
		return g.GetRegistryServiceName() != "" && slices.ContainsFunc(of.GetEndpoints(), in)
	})
}

func (n *Networks) gateways(wanted func(*meshv1alpha1.Network, *meshv1alpha1.Network_IstioNetworkGateway) bool) []Gateway {
	var out []Gateway
	for _, name := range n.names() {
		network := n.GetNetworks()[name]
		for _, g := range network.GetGateways() {
			if wanted(network, g) {
				out = append(out, Gateway{name, g.GetAddress(), g.GetRegistryServiceName(), g.GetPort()})
			}
		}
	}
	return out
}

// Ranges lists the CIDRs of all networks, sorted.
func (n *Networks) Ranges() []string {
	var out []string
	for _, name := range n.names() {
		for _, e := range n.GetNetworks()[name].GetEndpoints() {
			if p, err := netip.ParsePrefix(e.GetFromCidr()); err == nil {
				out = append(out, p.Masked().String())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (n *Networks) names() []string {
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.GetNetworks()))
}

// ClusterNetworks finds the networks of the addresses of one cluster. A nil ClusterNetworks finds none.
type ClusterNetworks struct {
	ranges  []networkRange // the longest prefix first
	cluster string         // the network of the whole cluster; empty if it is in none
}

type networkRange struct {
	prefix  netip.Prefix
	network string
}

// Of returns the networks of a cluster's addresses. It returns nil if n is nil.
func (n *Networks) Of(cluster string) *ClusterNetworks {
	if n == nil {
		return nil
	}
	c := &ClusterNetworks{}
	for _, name := range n.names() {
		for _, e := range n.GetNetworks()[name].GetEndpoints() {
			if p, err := netip.ParsePrefix(e.GetFromCidr()); err == nil {
				c.ranges = append(c.ranges, networkRange{p.Masked(), name})
			}
			if e.GetFromRegistry() == cluster && c.cluster == "" {
				c.cluster = name
			}
		}
	}
	slices.SortStableFunc(c.ranges, func(a, b networkRange) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	return c
}

// Network returns the network of an address: of the longest range that holds it, or else of the cluster. It returns the
// empty string if there is none.
func (c *ClusterNetworks) Network(address string) string {
	if c == nil {
		return ""
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		for _, r := range c.ranges {
			if r.prefix.Contains(ip.Unmap()) {
				return r.network
			}
		}
	}
	return c.cluster
}
