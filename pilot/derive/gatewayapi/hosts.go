package gatewayapi

import (
	"cmp"
	"fmt"
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
	listener  listenerID
	namespace string // of the routes, for a service; empty for a listener
	host      string
}

// contribution is a route of a target.
type contribution struct {
	route    *route
	listener *listener // nil: of a service
	parent   *parent   // for a service
}

// host is a target, and the routes for it.
type host struct {
	target
	of    []contribution
	own   bool      // the routes are in the service's namespace, and for all clients
	alone *listener // whose hostname it is, and which a wider one may not stand in for; nil: it needs no answer without routes
}

// host returns the host of a target, a new one if there is none.
func (r *run) host(t target) *host {
	h := r.hosts[t]
	if h != nil {
		return h
	}
	h = &host{target: t}
	r.hosts[t] = h
	if t.namespace != "" {
		if r.services[t.host] == nil {
			r.services[t.host] = map[*host]struct{}{}
		}
		r.services[t.host][h] = struct{}{}
	}
	return h
}

// place finds what a route is a part of, and makes the VirtualServices that are of it alone.
func (r *run) place(x *route) {
	add := func(t target, c contribution) {
		h := r.host(t)
		c.route = x
		x.hosts = append(x.hosts, h)
		h.of = append(h.of, c)
		r.hostsDue[h] = true
	}
	http := x.object.Kind == kinds.HTTPRoute || x.object.Kind == kinds.GRPCRoute
	streams := 0
	for _, p := range x.parents {
		for _, a := range p.attached {
			r.count(x, a.listener, 1)
			r.everyHost(a)
			for _, c := range x.connections(a) {
				r.streams[c] = append(r.streams[c], contender{x, x.streamName(streams)})
				r.streamsDue[c] = true
			}
			if !a.listener.bound {
				continue
			}
			if !http {
				x.stream(a, x.streamName(streams))
				streams += len(a.hosts)
				continue
			}
			for _, host := range a.hosts {
				add(target{listener: a.listener.id(), host: host}, contribution{listener: a.listener})
			}
		}
		if p.service != "" && p.refused == nil {
			add(target{namespace: x.object.Namespace, host: p.service}, contribution{parent: p})
		}
	}
	r.leads(x, 1)
}

// withdraw takes a route out of what it is a part of.
func (r *run) withdraw(x *route) {
	for _, h := range x.hosts {
		h.of = slices.DeleteFunc(h.of, func(c contribution) bool { return c.route == x })
		r.hostsDue[h] = true
	}
	for _, p := range x.parents {
		for _, a := range p.attached {
			r.count(x, a.listener, -1)
			r.everyHost(a)
			for _, c := range x.connections(a) {
				r.streams[c] = slices.DeleteFunc(r.streams[c], func(other contender) bool { return other.route == x })
				r.streamsDue[c] = true
			}
		}
	}
	r.leads(x, -1)
}

// count counts a route of a listener, if it is accepted.
func (r *run) count(x *route, l *listener, by int32) {
	if x.refused == nil {
		l.attached += by
		r.statusesDue[l.gateway] = true
	}
}

// lead is a Gateway with routes to a Service.
type lead struct{ service, gateway kinds.Key }

// leads counts the Services that a route of Gateways leads to.
func (r *run) leads(x *route, by int) {
	for _, s := range x.services {
		for _, g := range x.gateways {
			of := r.backends[s]
			if of == nil {
				of = map[kinds.Key]int{}
				r.backends[s] = of
			}
			if _, known := r.led[lead{s, g}]; !known {
				r.led[lead{s, g}] = of[g] > 0
			}
			if of[g] += by; of[g] == 0 {
				delete(of, g)
			}
			if len(of) == 0 {
				delete(r.backends, s)
			}
		}
	}
}

// makeHosts makes the VirtualServices of hosts. Routes for a host count by their precedence.
func (r *run) makeHosts() {
	for h := range r.hostsDue {
		h.sort()
		own := len(h.of) > 0 && h.of[0].parent != nil && h.of[0].parent.own
		if own || h.own {
			for other := range r.services[h.host] {
				if !other.own {
					other.sort()
					r.hostsDue[other] = true
				}
			}
		}
		if h.own = own; len(h.of) == 0 && h.alone == nil { // nothing is made for it
			delete(r.hosts, h.target)
			if delete(r.services[h.host], h); len(r.services[h.host]) == 0 {
				delete(r.services, h.host)
			}
		}
	}
	for h := range r.hostsDue {
		switch {
		case r.unanswered(h):
			r.put(h.target, derive.Part{Objects: []derive.Derived{h.alone.unrouted()}})
		case len(h.of) == 0:
			r.put(h.target, derive.Part{})
		case h.namespace == "":
			r.put(h.target, derive.Part{Objects: []derive.Derived{{Object: gatewayHost(h.target, h.of), Origin: h.of[0].route.object.Key}}})
		default:
			o, found := meshHost(h.target, h.of, r.producers(h))
			r.put(h.target, derive.Part{Objects: []derive.Derived{{Object: o, Origin: h.of[0].route.object.Key}}, Findings: found})
		}
	}
}

// sort sorts the routes of a host by age, and those of one age and name by their kinds.
func (h *host) sort() {
	slices.SortStableFunc(h.of, func(a, b contribution) int {
		rank := func(c contribution) int { return slices.Index(routeKinds(), c.route.object.Kind) }
		return cmp.Or(older(a.route.object, b.route.object), cmp.Compare(rank(a), rank(b)))
	})
}

// producers returns the routes of the service's own namespace, if those of a host are others.
func (r *run) producers(h *host) (of []contribution) {
	namespace := ""
	for other := range r.services[h.host] {
		if other.own && !h.own && other.namespace > namespace { // a ServiceEntry may be in several
			namespace, of = other.namespace, other.of
		}
	}
	return of
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
	l := of[0].listener
	return routes[0].virtualService(l.hostName(t.host), &networkingv1.VirtualService{Hosts: []string{t.host}, Gateways: []string{l.name}, Http: merge(routes)})
}

// meshHost returns the VirtualService of a service. Routes that name a port of it hide, for this port, those that name
// none. Routes of the service's own namespace, producers, are for all clients. Others are for those of their namespace,
// and there hide the producers for each port that they are for. Findings name the TLSRoutes and TCPRoutes that get no
// connections because of others.
func meshHost(t target, of, producers []contribution) (_ *kinds.Object, found []diag.Diagnostic) {
	spec := &networkingv1.VirtualService{Hosts: []string{t.host}, Gateways: []string{"mesh"}}
	own := of[0].parent.own
	if !own {
		spec.ExportTo = []string{"."}
	}
	for _, port := range of[0].parent.ports {
		from, inherited := of, false
		if !slices.ContainsFunc(of, func(c contribution) bool { return c.parent.port == 0 || c.parent.port == port }) {
			from, inherited = producers, true // whose findings are those of their own host
		}
		for _, kind := range [][]*kinds.Kind{{kinds.HTTPRoute, kinds.GRPCRoute}, {kinds.TLSRoute}, {kinds.TCPRoute}} {
			routes := forPort(from, port, kind)
			switch {
			case len(routes) == 0:
			case kind[0] == kinds.HTTPRoute:
				for _, h := range merge(routes) {
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
				taken := map[string]*route{}
				for _, x := range routes {
					hosts := sniOf(x, t.host)
					for _, host := range hosts {
						if first := taken[host]; first == nil {
							taken[host] = x
						} else if first != x && !inherited {
							found = append(found, x.loses(first, fmt.Sprintf("the connections for %s to port %d of %s", host, port, t.host)))
						}
					}
					if len(x.forwards) > 0 {
						spec.Tls = append(spec.Tls, &networkingv1alpha3.TLSRoute{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: hosts, Port: port}}, Route: x.forwards})
					}
				}
			default:
				for _, x := range routes[1:] {
					if !inherited {
						found = append(found, x.loses(routes[0], fmt.Sprintf("all connections to port %d of %s", port, t.host)))
					}
				}
				if x := routes[0]; len(x.forwards) > 0 {
					spec.Tcp = append(spec.Tcp, &networkingv1alpha3.TCPRoute{Match: []*networkingv1alpha3.L4MatchAttributes{{Port: port}}, Route: x.forwards})
				}
			}
		}
	}
	return of[0].route.virtualService(t.namespace+"~"+t.host, spec), found
}

// forPort returns the routes of some kinds for a port of a service: those that name it, or else those that name none.
// Each is there once.
func forPort(of []contribution, port uint32, kind []*kinds.Kind) []*route {
	var exactly, anyPort []*route
	for _, c := range of {
		switch {
		case !slices.Contains(kind, c.route.object.Kind):
		case c.parent.port == port && !slices.Contains(exactly, c.route):
			exactly = append(exactly, c.route)
		case c.parent.port == 0 && !slices.Contains(anyPort, c.route):
			anyPort = append(anyPort, c.route)
		}
	}
	if len(exactly) == 0 {
		return anyPort
	}
	return exactly
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
