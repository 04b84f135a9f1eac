package ingest

import (
	"net/netip"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
)

// nameTimeout bounds how long the first snapshot waits for the addresses of gateways with host names. Later snapshots
// do not wait: addresses arrive as changes.
const nameTimeout = 3 * time.Second

// gatewayServices returns the gateways that the mesh's networks name as services of a cluster, by host.
func gatewayServices(n *mesh.Networks, cluster string) map[string][]registry.Gateway {
	out := map[string][]registry.Gateway{}
	for _, g := range n.Services(cluster) {
		out[g.Service] = append(out[g.Service], registry.Gateway{Network: g.Network, Port: g.Port})
	}
	return out
}

// gateways returns the addresses of the gateways between networks, sorted: the gateways of the mesh's networks and of
// services.
func (w *World) gateways() []registry.Gateway {
	all := w.services.Gateways()
	for _, g := range w.networks.Gateways() {
		all = append(all, registry.Gateway{Network: g.Network, Address: g.Address, Port: g.Port})
	}
	var hosts []string
	for _, g := range all {
		if _, err := netip.ParseAddr(g.Address); err != nil && !w.o.NoHostNames {
			hosts = append(hosts, g.Address)
		}
	}
	slices.Sort(hosts)
	timeout := nameTimeout
	if w.last != nil {
		timeout = 0
	}
	w.hosts.Want(slices.Compact(hosts), timeout)
	out := make([]registry.Gateway, 0, len(all))
	for _, g := range all {
		if _, err := netip.ParseAddr(g.Address); err == nil {
			out = append(out, g)
			continue
		}
		if w.o.NoHostNames {
			continue
		}
		addresses, _ := w.hosts.Get(g.Address) // a gateway without addresses is left out
		for _, a := range addresses {
			g.Address = a
			out = append(out, g)
		}
	}
	slices.SortFunc(out, registry.CompareGateways)
	return slices.Compact(out)
}
