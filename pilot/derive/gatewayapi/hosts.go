package gatewayapi

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// target identifies a VirtualService: a host of a listener, or a service with the routes of a namespace.
type target struct {
	listener  listenerID
	namespace string // namespace of the routes to a service; empty for a listener
	host      string
}

// contribution is a route of a target.
type contribution struct {
	route    *route
	listener *listener // nil for a service
	parent   *parent
}

// host is a target and its routes.
type host struct {
	target
	of   []contribution
	lost map[*route][]loss // matches and connections that routes lose to another route; hosts with the same routes share it
	what string            // the matches that routes lose, if hosts share lost
	own  bool              // whether the routes are in the service's namespace and apply to all clients
	// listener of exactly this hostname, whose requests a wider one may not take; nil if they need no answer without
	// routes
	alone *listener
}

// placed is a host for which a route has routes, by one of its parents.
type placed struct {
	host   *host
	parent *parent
}

// host returns the host of a target, and creates it if there is none.
func (r *run) host(t target) *host {
	h := r.hosts[t]
	if h != nil {
		return h
	}
	h = &host{target: t}
	r.hosts[t] = h
	if t.namespace != "" {
		lists.PutIn(r.services, t.host, h, struct{}{})
	}
	return h
}

// place adds a route to its hosts and streams.
func (r *run) place(x *route) {
	add := func(t target, c contribution) {
		h := r.host(t)
		c.route = x
		x.hosts = append(x.hosts, placed{h, c.parent})
		h.of = append(h.of, c)
		r.hostsDue[h] = true
	}
	http := x.object.Kind == kinds.HTTPRoute || x.object.Kind == kinds.GRPCRoute
	streams := 0
	for _, p := range x.parents {
		for _, a := range p.attached {
			r.count(x, a.listener, 1)
			r.everyHost(a)
			if !http {
				r.claim(x, p, a, streams)
				streams += len(a.hosts)
				continue
			}
			if !a.listener.bound {
				continue
			}
			for _, host := range a.hosts {
				add(target{listener: a.listener.id(), host: host}, contribution{listener: a.listener, parent: p})
			}
		}
		if p.service != "" && p.refused == nil {
			add(target{namespace: x.object.Namespace, host: p.service}, contribution{parent: p})
		}
	}
	r.leads(x, 1)
}

// withdraw removes a route from its hosts and streams.
func (r *run) withdraw(x *route) {
	for _, at := range x.hosts {
		h := at.host
		h.of = slices.DeleteFunc(h.of, func(c contribution) bool { return c.route == x })
		r.hostsDue[h] = true
	}
	for _, p := range x.parents {
		for _, a := range p.attached {
			r.count(x, a.listener, -1)
			r.everyHost(a)
		}
	}
	r.unclaim(x)
	r.leads(x, -1)
}

// count adds by to the number of routes of a listener if the route is accepted.
func (r *run) count(x *route, l *listener, by int32) {
	if x.refused == nil {
		l.attached += by
		r.statusesDue[l.gateway] = true
	}
}

// lead is a Gateway with routes to a Service.
type lead struct{ service, gateway kinds.Key }

// leads adds by to the number of routes from Gateways to Services.
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

// makeHosts makes the VirtualServices of the hosts that are due. Routes are ordered by precedence.
func (r *run) makeHosts() {
	for h := range r.hostsDue {
		h.sort()
		own := len(h.of) > 0 && h.of[0].parent.own
		if own || h.own {
			for other := range r.services[h.host] {
				if !other.own {
					other.sort()
					r.hostsDue[other] = true
				}
			}
		}
		if h.own = own; len(h.of) == 0 && h.alone == nil { // it needs no VirtualService
			delete(r.hosts, h.target)
			if delete(r.services[h.host], h); len(r.services[h.host]) == 0 {
				delete(r.services, h.host)
			}
		}
	}
	for h := range r.hostsDue {
		before := h.lost
		h.lost = nil
		var part derive.Part
		switch {
		case r.unanswered(h):
			part.Objects = []derive.Derived{h.alone.unrouted()}
		case len(h.of) > 0 && h.namespace == "":
			part.Objects = []derive.Derived{{Object: r.gatewayHost(h), Origin: h.of[0].route.object.Key}}
		case len(h.of) > 0:
			part.Objects = []derive.Derived{{Object: h.meshHost(r.producers(h)), Origin: h.of[0].route.object.Key}}
		}
		for x, lost := range h.lost {
			if !slices.Equal(lost, before[x]) {
				r.partsDue[x] = true
			}
		}
		for x := range before {
			if h.lost[x] == nil {
				r.partsDue[x] = true
			}
		}
		r.put(h.target, part)
	}
}

// sort sorts the routes of a host by age and name, and then by kind.
func (h *host) sort() {
	slices.SortStableFunc(h.of, func(a, b contribution) int {
		return cmp.Or(older(a.route.object, b.route.object), compareKinds(a.route.object, b.route.object))
	})
}

// losses returns what a route of the host loses to other routes.
func (h *host) losses(x *route) []loss {
	list := slices.Clone(h.lost[x])
	for i := range list {
		list[i].what = cmp.Or(list[i].what, h.what)
	}
	return list
}

// producers returns the routes in the service's own namespace, unless they are the routes of the host itself.
func (r *run) producers(h *host) (of []contribution) {
	namespace := ""
	for other := range r.services[h.host] {
		if other.own && !h.own && other.namespace > namespace { // a host of ServiceEntries may be in several namespaces
			namespace, of = other.namespace, other.of
		}
	}
	return of
}

// ranked is one match among the matches of all routes of a host.
type ranked struct {
	httpRule
	route *route
}

// merge returns the matches of routes, given in their order, in the order in which they are tried: by the path, the
// method, the number of matched headers and query parameters, the order of the routes, and the order within a route. It
// calls lost for each match that an earlier route has as well. of returns the rules of a route to merge.
func merge(routes []*route, of func(*route) *rules, lost func(x ranked, to *route)) []*networkingv1alpha3.HTTPRoute {
	all := rankedRules(routes, of)
	if len(routes) > 1 {
		eachRepeated(all, lost)
	}
	return lists.Map(all, func(x ranked) *networkingv1alpha3.HTTPRoute { return x.http })
}

// rankedRules returns the matches of routes, given in their order, in the order in which they are tried.
func rankedRules(routes []*route, of func(*route) *rules) (all []ranked) {
	for _, x := range routes {
		for _, rule := range of(x).http {
			all = append(all, ranked{rule, x})
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
		return cmp.Or(cmp.Compare(b.path, a.path), cmp.Compare(b.length, a.length), first(a.method, b.method),
			cmp.Compare(b.headers, a.headers), cmp.Compare(b.queries, a.queries))
	})
	return all
}

// eachRepeated calls lost for each match that an earlier route has as well.
func eachRepeated(all []ranked, lost func(x ranked, to *route)) {
	seen := make(map[uint64]*ranked, len(all))
	for i := range all {
		x := &all[i]
		switch first := seen[x.hash]; {
		case first == nil:
			seen[x.hash] = x
		case first.route != x.route && first.precedence == x.precedence &&
			slices.EqualFunc(first.http.Match, x.http.Match, func(a, b *networkingv1alpha3.HTTPMatchRequest) bool {
				return proto.Equal(a, b)
			}):
			lost(*x, first.route)
		}
	}
}

// merged is the rules of some routes in the order in which they are tried, and the matches that routes lose to others.
type merged struct {
	routes []*route
	http   []*networkingv1alpha3.HTTPRoute
	lost   map[*route][]loss
}

// merge merges the rules of routes for Gateways, once for all hosts with the same routes.
func (r *run) merge(routes []*route) *merged {
	var h maphash.Hash
	h.SetSeed(r.seed)
	for _, x := range routes {
		maphash.WriteComparable(&h, x)
	}
	same := r.merges[h.Sum64()]
	for _, m := range same {
		if slices.Equal(m.routes, routes) {
			return m
		}
	}
	m := &merged{routes: routes, lost: map[*route][]loss{}}
	m.http = merge(routes, func(x *route) *rules { return &x.rules }, func(x ranked, to *route) {
		m.lost[x.route] = append(m.lost[x.route], x.route.losesMatch(to, x.httpRule, ""))
	})
	r.merges[h.Sum64()] = append(same, m)
	return m
}

// gatewayHost returns the VirtualService of a host of a listener.
func (r *run) gatewayHost(h *host) *kinds.Object {
	l := h.of[0].listener
	m := r.merge(slices.Compact(lists.Map(h.of, func(c contribution) *route { return c.route })))
	h.lost, h.what = m.lost, fmt.Sprintf("the same match for %s of listener %s of %s", h.host, l.Name, l.owner)
	return m.routes[0].virtualService(l.hostName(h.host),
		&networkingv1.VirtualService{Hosts: []string{h.host}, Gateways: []string{l.name}, Http: m.http})
}

// meshHost returns the VirtualService of a service. Routes that name a port of the service hide, for this port, routes
// that name none. Routes of the service's own namespace, the producers, apply to all clients. Routes of another
// namespace apply to clients of that namespace, and hide the producers there for each port that they are for.
func (h *host) meshHost(producers []contribution) *kinds.Object {
	h.lost = map[*route][]loss{}
	spec := &networkingv1.VirtualService{Hosts: []string{h.host}, Gateways: []string{"mesh"}}
	if !h.of[0].parent.own {
		spec.ExportTo = []string{"."}
	}
	for _, port := range h.of[0].parent.ports {
		from, inherited := h.of, false
		if !slices.ContainsFunc(h.of, func(c contribution) bool { return c.parent.port == 0 || c.parent.port == port }) {
			from, inherited = producers, true // their losses belong to their own host
		}
		loses := func(x *route, l loss) {
			if l.port = port; !inherited {
				h.lost[x] = append(h.lost[x], l)
			}
		}
		if routes := forPort(from, port, kinds.HTTPRoute, kinds.GRPCRoute); len(routes) > 0 {
			http := merge(routes, (*route).mesh, func(x ranked, to *route) {
				loses(x.route, x.route.losesMatch(to, x.httpRule, fmt.Sprintf("the same match for port %d of %s", port, h.host)))
			})
			for _, x := range http {
				at := proto.Clone(x).(*networkingv1alpha3.HTTPRoute)
				if len(at.Match) == 0 {
					at.Match = []*networkingv1alpha3.HTTPMatchRequest{{}}
				}
				for _, m := range at.Match {
					m.Port = port
				}
				spec.Http = append(spec.Http, at)
			}
		}
		taken := map[string]*route{}
		for _, x := range forPort(from, port, kinds.TLSRoute) {
			hosts := sniOf(x, h.host)
			for _, host := range hosts {
				if first := taken[host]; first == nil {
					taken[host] = x
				} else if first != x {
					loses(x, x.loses(first, host, fmt.Sprintf("the connections for %s to port %d of %s", host, port, h.host)))
				}
			}
			if len(x.mesh().forwards) > 0 {
				spec.Tls = append(spec.Tls, &networkingv1alpha3.TLSRoute{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: hosts, Port: port}},
					Route: x.mesh().forwards})
			}
		}
		tcp := forPort(from, port, kinds.TCPRoute)
		for i, x := range tcp {
			if i > 0 {
				loses(x, x.loses(tcp[0], "", fmt.Sprintf("all connections to port %d of %s", port, h.host)))
			} else if len(x.mesh().forwards) > 0 {
				spec.Tcp = append(spec.Tcp, &networkingv1alpha3.TCPRoute{Match: []*networkingv1alpha3.L4MatchAttributes{{Port: port}},
					Route: x.mesh().forwards})
			}
		}
	}
	return h.of[0].route.virtualService(h.namespace+"~"+h.host, spec)
}

// forPort returns the routes of some kinds for a port of a service: the routes that name the port, or else the routes
// that name none. Each is returned once.
func forPort(of []contribution, port uint32, kind ...*kinds.Kind) []*route {
	var exactly, anyPort []*route
	for _, c := range of {
		switch {
		case !slices.Contains(kind, c.route.object.Kind):
		case c.parent.port == port:
			exactly = append(exactly, c.route)
		case c.parent.port == 0:
			anyPort = append(anyPort, c.route)
		}
	}
	if len(exactly) == 0 {
		exactly = anyPort
	}
	return slices.Compact(exactly)
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
