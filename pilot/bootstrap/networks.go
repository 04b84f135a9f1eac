package bootstrap

import (
	"net/netip"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/registry"
)

// namePatience bounds how long the first snapshot waits for the addresses of gateways that are known by name. Later
// ones do not: addresses come as changes.
const namePatience = 3 * time.Second

// names resolves the host names of gateways between networks.
type names interface {
	Want(hosts []string)
	Wait(longest time.Duration) map[string][]string // ends with the server, too
	Failing() map[string]string                     // why, by name
}

// gatewayServices returns the gateways that the mesh's networks name as services of a cluster, by host.
func gatewayServices(n *mesh.Networks, cluster string) map[string][]registry.Gateway {
	out := map[string][]registry.Gateway{}
	for _, g := range n.Services(cluster) {
		out[g.Service] = append(out[g.Service], registry.Gateway{Network: g.Network, Port: g.Port})
	}
	return out
}

// takeAnswers keeps what names resolve to, and returns the other changes.
func (w *world) takeAnswers(batch []kinds.Change) []kinds.Change {
	answer := func(c kinds.Change) bool { return c.Kind == kinds.HostAddresses }
	if !slices.ContainsFunc(batch, answer) {
		return batch
	}
	for _, c := range batch {
		if answer(c) && slices.Contains(w.hosts, c.Name) {
			w.answers[c.Name] = *c.Object.Spec.(*[]string)
		}
	}
	return slices.DeleteFunc(slices.Clone(batch), answer)
}

// gateways returns the addresses by which networks are entered, sorted: those that the mesh's networks name, and those
// of services.
func (w *world) gateways() []registry.Gateway {
	all := w.services.Gateways()
	for _, g := range w.networks.Gateways() {
		all = append(all, registry.Gateway{Network: g.Network, Address: g.Address, Port: g.Port})
	}
	var hosts []string
	for _, g := range all {
		if _, err := netip.ParseAddr(g.Address); err != nil {
			hosts = append(hosts, g.Address)
		}
	}
	slices.Sort(hosts)
	w.want(slices.Compact(hosts))
	out := make([]registry.Gateway, 0, len(all))
	for _, g := range all {
		if _, err := netip.ParseAddr(g.Address); err == nil {
			out = append(out, g)
			continue
		}
		for _, a := range w.answers[g.Address] {
			g.Address = a
			out = append(out, g)
		}
	}
	slices.SortFunc(out, registry.CompareGateways)
	return slices.Compact(out)
}

// want has names resolved. Those that nobody wants any more are forgotten.
func (w *world) want(hosts []string) {
	if w.names == nil || slices.Equal(hosts, w.hosts) {
		return
	}
	w.hosts = hosts
	for h := range w.answers {
		if !slices.Contains(hosts, h) {
			delete(w.answers, h)
		}
	}
	w.names.Want(hosts)
	if w.last != nil || len(hosts) == 0 {
		return
	}
	for h, addresses := range w.names.Wait(namePatience) {
		w.answers[h] = addresses
	}
}
