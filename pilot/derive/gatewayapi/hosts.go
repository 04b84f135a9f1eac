package gatewayapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// target is what a VirtualService is made for: a host of a listener, or a service for the routes of a namespace.
type target struct {
	listener  *listener // nil: of a service
	namespace string    // of the routes, for a service
	host      string
}

// contribution is a route of a target.
type contribution struct {
	route  *route
	parent *parent // for a service
}

// host is a target, the routes for it, and the VirtualService that was made of them.
type host struct {
	target
	run  uint64         // the last that had routes for it
	next []contribution // in that run

	of        []contribution // what object was made of
	producers []contribution // as above: of the service's own namespace, for routes of another
	object    *kinds.Object
	origin    kinds.Key
}

// place is a target that a route is for.
type place struct {
	host   *host
	parent *parent // for a service
}

// place finds the targets that a route is for, and makes the VirtualServices that are of it alone.
func (x *route) place(r *run) {
	add := func(t target, p *parent) {
		h := r.hosts[t]
		if h == nil {
			h = &host{target: t}
			r.hosts[t] = h
		}
		x.places = append(x.places, place{h, p})
	}
	http := x.object.Kind == kinds.HTTPRoute || x.object.Kind == kinds.GRPCRoute
	streams := 0
	for _, p := range x.parents {
		for _, a := range p.attached {
			if !a.listener.bound {
				continue
			}
			if !http {
				x.stream(a, streams)
				streams += len(a.hosts)
				continue
			}
			for _, host := range a.hosts {
				add(target{listener: a.listener, host: host}, nil)
			}
		}
		if p.service != "" && p.refused == nil {
			add(target{namespace: x.object.Namespace, host: p.service}, p)
		}
	}
}

// makeHosts makes the VirtualServices. Routes for a host count by their precedence.
func (r *run) makeHosts(all []*route) {
	order := make([]*host, 0, len(r.hosts))
	for _, x := range all {
		if !x.placed {
			x.place(r)
			x.placed = true
		}
		r.out.Objects = append(r.out.Objects, x.streamed...)
		for _, p := range x.places {
			if h := p.host; h.run != r.number {
				h.run, h.next = r.number, h.next[:0]
				order = append(order, h)
			}
			p.host.next = append(p.host.next, contribution{x, p.parent})
		}
	}
	if len(r.hosts) > len(order) {
		maps.DeleteFunc(r.hosts, func(_ target, h *host) bool { return h.run != r.number })
	}
	r.findIdle(all)
	producers := map[string][]contribution{} // by service: the routes of its own namespace
	for _, h := range order {
		slices.SortStableFunc(h.next, func(a, b contribution) int { return older(a.route.object, b.route.object) })
		if h.listener == nil && h.next[0].parent.own {
			producers[h.host] = h.next
		}
	}
	for _, h := range order {
		var others []contribution
		if h.listener == nil && !h.next[0].parent.own {
			others = producers[h.host]
		}
		if h.object == nil || !slices.Equal(h.of, h.next) || !slices.Equal(h.producers, others) {
			h.of, h.producers = slices.Clone(h.next), slices.Clone(others)
			h.origin = h.of[0].route.object.Key
			if h.listener != nil {
				h.object = gatewayHost(h.target, h.of)
			} else {
				h.object = meshHost(h.target, h.of, producers[h.host])
			}
		}
		r.out.Objects = append(r.out.Objects, derive.Derived{Object: h.object, Origin: h.origin})
	}
}

// findIdle adds findings for TCPRoutes that get no connections: all of a listener are the oldest route's.
func (r *run) findIdle(all []*route) {
	var first map[*listener]*route
	each := func(visit func(x *route, l *listener)) {
		for _, x := range all {
			if x.object.Kind != kinds.TCPRoute {
				continue
			}
			for _, p := range x.parents {
				for _, a := range p.attached {
					visit(x, a.listener)
				}
			}
		}
	}
	each(func(x *route, l *listener) {
		if first == nil {
			first = map[*listener]*route{}
		}
		if f := first[l]; f == nil || older(x.object, f.object) < 0 {
			first[l] = x
		}
	})
	each(func(x *route, l *listener) {
		if f := first[l]; f != x {
			r.found(finding(x.object, diag.Warning, x.object.Kind.Name, "spec.parentRefs", "name another listener",
				fmt.Sprintf("TCPRoute %s/%s, which is older, has all connections of listener %s: this one gets none there", f.object.Namespace, f.object.Name, l.Name)))
		}
	})
}

// ranked is one match among those of all routes of a host.
type ranked struct {
	httpRule
	route *route
	place int // within the route
}

// merge returns the matches of routes in the order in which they are tried: by the path, the method, how many headers
// and query parameters match, the age of the route, its name, and its order within the route.
func merge(routes []*route) []*networkingv1alpha3.HTTPRoute {
	var all []ranked
	for _, x := range routes {
		for i, rule := range x.http {
			all = append(all, ranked{rule, x, i})
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		first := func(is, than bool) int {
			switch {
			case is == than:
				return 0
			case is:
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.path, a.path), cmp.Compare(b.length, a.length), first(a.method, b.method), cmp.Compare(b.headers, a.headers), cmp.Compare(b.queries, a.queries),
			older(a.route.object, b.route.object), cmp.Compare(a.place, b.place))
	})
	out := make([]*networkingv1alpha3.HTTPRoute, len(all))
	for i, x := range all {
		out[i] = x.http
	}
	return out
}

// gatewayHost returns the VirtualService of a host of a listener.
func gatewayHost(t target, of []contribution) *kinds.Object {
	var routes []*route
	for _, c := range of {
		if !slices.Contains(routes, c.route) {
			routes = append(routes, c.route)
		}
	}
	name := strings.Join([]string{t.listener.owner.Namespace, t.listener.ownerName, suffix, string(t.listener.Name), t.host}, "~")
	return routes[0].virtualService(name, &networkingv1.VirtualService{Hosts: []string{t.host}, Gateways: []string{t.listener.name}, Http: merge(routes)})
}

// meshHost returns the VirtualService of a service. Routes that name a port of it hide, for this port, those that name
// none. Routes of the service's own namespace, producers, are for all clients. Others are for those of their namespace,
// and there hide the producers for each port that they are for.
func meshHost(t target, of, producers []contribution) *kinds.Object {
	spec := &networkingv1.VirtualService{Hosts: []string{t.host}, Gateways: []string{"mesh"}}
	own := of[0].parent.own
	if !own {
		spec.ExportTo = []string{"."}
	}
	for _, port := range of[0].parent.ports {
		for _, kind := range [][]*kinds.Kind{{kinds.HTTPRoute, kinds.GRPCRoute}, {kinds.TLSRoute}, {kinds.TCPRoute}} {
			var exactly, anyPort []*route
			from := of
			if !slices.ContainsFunc(of, func(c contribution) bool { return c.parent.port == 0 || c.parent.port == port }) {
				from = producers
			}
			for _, c := range from {
				if !slices.Contains(kind, c.route.object.Kind) {
					continue
				}
				switch c.parent.port {
				case port:
					exactly = append(exactly, c.route)
				case 0:
					anyPort = append(anyPort, c.route)
				}
			}
			if len(exactly) == 0 {
				exactly = anyPort
			}
			switch {
			case len(exactly) == 0:
			case kind[0] == kinds.HTTPRoute:
				for _, h := range merge(exactly) {
					at := proto.Clone(h).(*networkingv1alpha3.HTTPRoute)
					if len(at.Match) == 0 {
						at.Match = []*networkingv1alpha3.HTTPMatchRequest{{}}
					}
					for _, m := range at.Match {
						m.Port = port
					}
					spec.Http = append(spec.Http, at)
				}
			case kind[0] == kinds.TLSRoute:
				for _, x := range exactly {
					if hosts := sniOf(x, t.host); len(x.forwards) > 0 {
						spec.Tls = append(spec.Tls, &networkingv1alpha3.TLSRoute{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: hosts, Port: port}}, Route: x.forwards})
					}
				}
			default:
				if x := exactly[0]; len(x.forwards) > 0 {
					spec.Tcp = append(spec.Tcp, &networkingv1alpha3.TCPRoute{Match: []*networkingv1alpha3.L4MatchAttributes{{Port: port}}, Route: x.forwards})
				}
			}
		}
	}
	return of[0].route.virtualService(t.namespace+"~"+t.host, spec)
}

// sniOf returns the names by which a TLSRoute matches connections to a service.
func sniOf(x *route, host string) (hosts []string) {
	for _, h := range x.hostnames {
		hosts = append(hosts, strings.ToLower(string(h)))
	}
	if len(hosts) == 0 {
		hosts = []string{host}
	}
	return hosts
}

// stream makes the VirtualService of a TLSRoute or a TCPRoute for a listener. i numbers those of the route.
func (x *route) stream(a attachment, i int) {
	if len(x.forwards) == 0 {
		return
	}
	spec := &networkingv1.VirtualService{Hosts: a.hosts, Gateways: []string{a.listener.name}}
	kind := "tcp"
	if x.object.Kind == kinds.TLSRoute {
		kind = "tls"
	}
	if kind == "tls" && a.listener.passthrough() {
		spec.Tls = []*networkingv1alpha3.TLSRoute{{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: a.hosts}}, Route: x.forwards}}
	} else {
		spec.Tcp = []*networkingv1alpha3.TCPRoute{{Route: x.forwards}}
	}
	x.streamed = append(x.streamed, derive.Derived{Object: x.virtualService(fmt.Sprintf("%s~%s~%d~%s", x.object.Name, kind, i, suffix), spec), Origin: x.object.Key})
}
