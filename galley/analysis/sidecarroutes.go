package analysis

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// maxOfSidecar bounds the findings about one Sidecar's routes.
const maxOfSidecar = 16

// hostPort is a port of a host; 0 stands for all ports.
type hostPort struct {
	host string
	port uint32
}

// routed is a destination of a route of a VirtualService.
type routed struct {
	hostPort
	field string
}

// sidecarRoutes reports routes on the ports of egress listeners whose destinations the Sidecar does not import: a
// listener with a port imports only that port of the destinations of its routes.
func (a *analysis) sidecarRoutes() {
	compared := comparisons{most: maxComparisons}
	var byNamespace map[string][]*kinds.Object
	for _, o := range a.of(kinds.Sidecar) {
		egress := egressOf(o)
		if !slices.ContainsFunc(egress, func(l egressListener) bool { return l.GetPort().GetNumber() != 0 }) {
			continue
		}
		if byNamespace == nil {
			byNamespace = map[string][]*kinds.Object{}
			for _, v := range a.routes {
				if slices.Contains(gatewaysOf(v), meshGateway) {
					byNamespace[v.Namespace] = append(byNamespace[v.Namespace], v)
					byNamespace["*"] = append(byNamespace["*"], v)
				}
			}
		}
		compared.begin()
		a.sidecarRoutesOf(o, egress, byNamespace, &compared)
		if compared.refused {
			a.report(o, diag.Info, codeLimit, "spec.egress", "name fewer hosts",
				"its listeners import too many VirtualServices: not all of their routes are compared with its imports")
		}
	}
}

func (a *analysis) sidecarRoutesOf(o *kinds.Object, egress []egressListener,
	byNamespace map[string][]*kinds.Object, compared *comparisons) {
	importedBy := make([][]*kinds.Object, len(egress))
	led := map[hostPort]bool{} // destinations that routes import
	for i, l := range egress {
		importedBy[i] = a.importedRoutes(o, l, byNamespace, compared)
		for _, v := range importedBy[i] {
			for to := range a.destinationsOf(v, 0) {
				if port := l.GetPort().GetNumber(); port != 0 {
					to.port = port
				}
				led[to.hostPort] = true
			}
		}
	}
	reported := 0
	seen := map[*kinds.Object]bool{}
	for i, l := range egress {
		port := l.GetPort().GetNumber()
		if port == 0 {
			continue
		}
		clear(seen)
		for _, v := range importedBy[i] {
			for to := range a.destinationsOf(v, port) {
				known := a.hosts[to.host]
				if to.port == 0 || len(known) == 0 || !slices.Contains(known[0].ports, to.port) || seen[v] || // fails for all
					led[to.hostPort] || led[hostPort{to.host, 0}] || imported(egress, known[0], to.port) {
					continue
				}
				seen[v] = true
				if reported++; reported > maxOfSidecar {
					return
				}
				a.report(o, diag.Warning, codeSidecarRoute, indexed("spec.egress", i)+".hosts",
					"add "+known[0].object.Namespace+"/"+to.host+" to the hosts of an egress listener without a port, or of one for that port",
					"%s of %s leads from this listener to port %d of %s, which the Sidecar does not import: its requests and connections fail",
					to.field, v, to.port, to.host)
			}
		}
	}
}

// importedRoutes returns the VirtualServices that an egress listener of a Sidecar imports.
func (a *analysis) importedRoutes(o *kinds.Object, l egressListener,
	byNamespace map[string][]*kinds.Object, compared *comparisons) (list []*kinds.Object) {
	taken := map[*kinds.Object]bool{}
	for _, text := range l.GetHosts() {
		imported := names.ParseEgressHost(text, o.Namespace)
		if imported.Excluded {
			continue
		}
		for _, v := range byNamespace[imported.Namespace] {
			if !compared.more() {
				return list
			}
			overlaps := func(h string) bool {
				name := names.FQDN(h, v.Namespace, a.domain)
				return names.Overlap(imported.Host, name) && !l.hosts.Excludes(v.Namespace, name)
			}
			spec := v.Spec.(*networkingv1.VirtualService)
			if !taken[v] && slices.ContainsFunc(spec.Hosts, overlaps) &&
				exported(spec.ExportTo, a.mesh.GetDefaultVirtualServiceExportTo(), v.Namespace, o.Namespace) {
				taken[v] = true
				list = append(list, v)
			}
		}
	}
	return list
}

// imported reports whether the hosts of an egress listener have a port of a host.
func imported(egress []egressListener, h *host, port uint32) bool {
	return slices.ContainsFunc(egress, func(l egressListener) bool {
		number := l.GetPort().GetNumber()
		return (number == 0 || number == port || strings.EqualFold(l.GetPort().GetProtocol(), "HTTP_PROXY")) &&
			l.hosts.Covers(h.object.Namespace, h.name)
	})
}

// destinationsOf yields the destinations of a VirtualService's routes that may match calls to a port; 0 stands for any
// port. A destination without a port has the called port.
func (a *analysis) destinationsOf(v *kinds.Object, called uint32) iter.Seq[routed] {
	spec := v.Spec.(*networkingv1.VirtualService)
	return func(yield func(routed) bool) {
		to := func(d *networkingv1alpha3.Destination, field string) bool {
			port := d.GetPort().GetNumber()
			port = cmp.Or(port, called)
			return d.GetHost() == "" || yield(routed{hostPort{names.Destination(d.Host, v.Namespace, a.domain), port}, field})
		}
		for i, h := range spec.Http {
			if !mayMatch(h.Match, called) {
				continue
			}
			for j, d := range h.Route {
				if !to(d.Destination, indexed(indexed("spec.http", i)+".route", j)) {
					return
				}
			}
		}
		for i, t := range spec.Tls {
			if !mayMatch(t.Match, called) {
				continue
			}
			for j, d := range t.Route {
				if !to(d.Destination, indexed(indexed("spec.tls", i)+".route", j)) {
					return
				}
			}
		}
		for i, t := range spec.Tcp {
			if !mayMatch(t.Match, called) {
				continue
			}
			for j, d := range t.Route {
				if !to(d.Destination, indexed(indexed("spec.tcp", i)+".route", j)) {
					return
				}
			}
		}
	}
}

// mayMatch reports whether a route with some matches may match calls to a port; 0 stands for any port.
func mayMatch[M interface{ GetPort() uint32 }](matches []M, called uint32) bool {
	return len(matches) == 0 || called == 0 ||
		slices.ContainsFunc(matches, func(m M) bool { return m.GetPort() == 0 || m.GetPort() == called })
}
