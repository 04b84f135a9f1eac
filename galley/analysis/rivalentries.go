package analysis

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// rivalEntries reports ServiceEntries with a part that has no effect, because an older entry or a Service has the same
// host, or the same address and port.
func (a *analysis) rivalEntries() {
	a.rivalHosts()
	a.rivalAddresses()
}

// rivalHosts compares the objects of each host. Within a namespace, a Service or else the oldest entry defines the
// host, and other entries may add to it. If several namespaces have the host, proxies use the one of their own
// namespace, else the first that is visible to them.
func (a *analysis) rivalHosts() {
	type of struct{ namespace, host string }
	defines, elsewhere := map[of]*kinds.Object{}, map[string]*kinds.Object{}
	for name, list := range a.hosts { // the objects of one host are by precedence; the order of hosts does not matter here
		list = slices.Clone(list)
		slices.SortStableFunc(list, byHostPrecedence)
		for _, h := range list {
			if key := (of{h.object.Namespace, name}); h.object.Cluster == "" && (defines[key] == nil || h.object.Kind == kinds.Service) {
				defines[key] = h.object
			}
			if elsewhere[name] == nil && public(h.exportTo, a.mesh.GetDefaultServiceExportTo()) {
				elsewhere[name] = h.object
			}
		}
	}
	protocols := map[*kinds.Object]map[uint32]string{} // protocols by port, of the objects that define hosts
	for _, o := range a.of(kinds.ServiceEntry) {
		spec := o.Spec.(*networkingv1.ServiceEntry)
		for i, written := range spec.Hosts {
			host, field := names.FQDN(written, "", a.domain), indexed("spec.hosts", i)
			if first := defines[of{o.Namespace, host}]; first != nil && first != o {
				a.joins(o, first, field, host, protocols)
				continue
			}
			if first := elsewhere[host]; first != nil && first.Namespace != o.Namespace &&
				public(a.entryExports(o), a.mesh.GetDefaultServiceExportTo()) {
				a.report(o, diag.Warning, codeHost, field, "leave the host to one of the two, or limit exportTo to the namespaces that each is for",
					"%s has the host %s too and is used by the proxies of all other namespaces (%s): this one is used by the proxies of namespace %s only",
					first, host, olderOr(first, o, "both are of the same age, and its namespace sorts first"), o.Namespace)
			} else if first != nil && first.Namespace != o.Namespace {
				a.hides(o, first, field, host)
			}
		}
	}
}

// hides reports an entry that is not exported to all namespaces and lacks ports that another entry of its host has: its
// own namespace sees only this entry.
func (a *analysis) hides(o, other *kinds.Object, field, host string) {
	if !exported(a.entryExports(o), a.mesh.GetDefaultServiceExportTo(), o.Namespace, o.Namespace) {
		return
	}
	own := map[uint32]bool{}
	for _, p := range o.Spec.(*networkingv1.ServiceEntry).Ports {
		own[p.Number] = true
	}
	spec, is := other.Spec.(*networkingv1.ServiceEntry)
	if !is {
		return
	}
	var missing []uint32
	for _, p := range spec.Ports {
		if !own[p.Number] {
			missing = append(missing, p.Number)
		}
	}
	if len(missing) > 0 {
		a.report(o, diag.Info, codeHost, field, "add the port here, or leave the host to the other",
			"%s has the host %s too, with port %s: proxies of namespace %s see only this entry, which has no such port",
			other, host, portsText(missing), o.Namespace)
	}
}

// byHostPrecedence orders the services of one host by the order in which proxies find them.
func byHostPrecedence(x, y *host) int {
	name := func(h *host) string {
		if h.object.Kind == kinds.Service {
			return h.object.Name
		}
		return h.name
	}
	return cmp.Or(
		x.object.Created.Compare(y.object.Created), cmp.Compare(name(x), name(y)),
		cmp.Compare(x.object.Namespace, y.object.Namespace), byPrecedence(x.object, y.object),
		cmp.Compare(x.object.Kind.Name, y.object.Kind.Name), cmp.Compare(x.name, y.name),
	)
}

// joins reports the parts of an entry that have no effect for a host that another object of its namespace defines.
// protocols has the ports of that object. joins adds the entry's ports to it.
func (a *analysis) joins(o, first *kinds.Object, field, host string, protocols map[*kinds.Object]map[uint32]string) {
	older, ok := first.Spec.(*networkingv1.ServiceEntry)
	if !ok {
		a.report(o, diag.Info, codeHost, field, "leave out what the Service says already",
			"%s has the host %s and defines it (a Service comes before entries): of this entry only the endpoints count", first, host)
		return
	}
	spec, why := o.Spec.(*networkingv1.ServiceEntry), precedence(first, o)
	if spec.Resolution != older.Resolution {
		a.report(o, diag.Warning, codeHost, field, "give both the same resolution, or merge the two",
			"%s has the host %s too and defines it (%s): its resolution is %s, so this entry, whose is %s, adds nothing to the host",
			first, host, why, older.Resolution, spec.Resolution)
		return
	}
	if protocols[first] == nil {
		protocols[first] = make(map[uint32]string, len(older.Ports))
		for _, p := range slices.Backward(older.Ports) {
			protocols[first][p.Number] = p.Protocol
		}
	}
	var ignored []string
	for _, p := range spec.Ports {
		if protocol, known := protocols[first][p.Number]; known && !strings.EqualFold(protocol, p.Protocol) {
			ignored = append(ignored, "port "+strconv.FormatUint(uint64(p.Number), 10)+" is "+cmp.Or(strings.ToUpper(protocol), "of no protocol"))
		}
	}
	const few = 8
	if n := len(ignored) - few; n > 0 {
		ignored = append(ignored[:few], strconv.Itoa(n)+" more ports have another protocol")
	}
	if spec.Location != older.Location {
		ignored = append(ignored, "the location is "+older.Location.String())
	}
	if !slices.Equal(slices.Sorted(slices.Values(spec.ExportTo)), slices.Sorted(slices.Values(older.ExportTo))) {
		ignored = append(ignored, "exportTo is "+cmp.Or(listed(older.ExportTo), "the default"))
	}
	if len(ignored) > 0 {
		a.report(o, diag.Warning, codeHost, field, "let both say the same, or merge the two",
			"%s has the host %s too and defines it (%s): for both, %s", first, host, why, strings.Join(ignored, ", "))
	}
}

// rivalAddresses reports addresses of entries whose connections lead to another host. A listener matches connections
// that are not HTTP only by address and port.
func (a *analysis) rivalAddresses() {
	type at struct {
		address string
		port    uint32
	}
	type owner struct {
		*kinds.Object
		host     string
		exportTo []string
	}
	claims := map[at]owner{}
	claim := func(o owner, address string, protocol protocols.Protocol, port uint32) (owner, bool) {
		address = boundAddress(address, protocol)
		if address == "" {
			return owner{}, false
		}
		key := at{address, port}
		first, taken := claims[key]
		if !taken {
			claims[key] = o
		}
		return first, taken && first.host != o.host && first.Object != o.Object &&
			together(first.Object, first.exportTo, o.Object, o.exportTo, a.mesh.GetDefaultServiceExportTo())
	}
	var all []*host
	for _, list := range a.hosts {
		for _, h := range list {
			if h.object.Cluster == "" {
				all = append(all, h)
			}
		}
	}
	slices.SortFunc(all, byHostPrecedence)
	for _, h := range all {
		o := owner{h.object, h.name, h.exportTo}
		switch spec := h.object.Spec.(type) {
		case *corev1.Service:
			for i := range spec.Spec.Ports {
				p := &spec.Spec.Ports[i]
				claim(o, spec.Spec.ClusterIP, protocols.OfPort(p), uint32(p.Port)) //nolint:gosec // validated
			}
		case *networkingv1.ServiceEntry:
			for i, address := range spec.Addresses {
				for _, p := range spec.Ports {
					if first, taken := claim(o, address, protocols.Parse(p.Protocol), p.Number); taken {
						a.report(h.object, diag.Warning, codeAddress, indexed("spec.addresses", i), "give each host an address of its own",
							"%s has the address %s too, and comes first on port %d (%s): connections there lead to its host %s, and not to %s",
							first.Object, address, p.Number,
							olderOr(first.Object, h.object, "both are of the same age, and its host sorts first"), first.host, h.name)
						break
					}
				}
			}
		}
	}
}

// boundAddress returns the address or range by which listeners match connections of a protocol. It returns "" if they
// match by other properties.
func boundAddress(address string, protocol protocols.Protocol) string {
	if protocol.IsHTTP() || protocol == protocols.UDP {
		return ""
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.String()
	}
	prefix, err := netip.ParsePrefix(address)
	switch {
	case err == nil && prefix.IsSingleIP():
		return prefix.Addr().String()
	case err != nil, protocol.IsTLS(): // in a range, matched by their server names
		return ""
	}
	return prefix.Masked().String()
}
