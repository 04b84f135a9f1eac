package gatewayapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

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

// hostResult is the VirtualService of a target, and what it was made of.
type hostResult struct {
	of     []contribution
	object *kinds.Object
	origin kinds.Key
}

// makeHosts makes the VirtualServices. Routes for a host count by their precedence.
func (r *run) makeHosts(all []*route) {
	targets := map[target][]contribution{}
	var order []target
	add := func(t target, c contribution) {
		if targets[t] == nil {
			order = append(order, t)
		}
		targets[t] = append(targets[t], c)
	}
	for _, x := range all {
		if x.dropped {
			continue
		}
		http := x.object.Kind == kinds.HTTPRoute || x.object.Kind == kinds.GRPCRoute
		streams := 0
		for _, p := range x.parents {
			for _, a := range p.attached {
				if !a.listener.bound {
					continue
				}
				if !http {
					r.forwardOf(x, a, streams)
					streams += len(a.hosts)
					continue
				}
				for _, host := range a.hosts {
					add(target{listener: a.listener, host: host}, contribution{x, nil})
				}
			}
			if p.service != "" && p.refused == nil {
				add(target{namespace: x.object.Namespace, host: p.service}, contribution{x, p})
			}
		}
	}
	producers := map[string][]contribution{} // by service: the routes of its own namespace
	for _, t := range order {
		slices.SortStableFunc(targets[t], func(a, b contribution) int { return older(a.route.object, b.route.object) })
		if of := targets[t]; t.listener == nil && of[0].parent.own {
			producers[t.host] = of
		}
	}
	before := r.stage.hosts
	r.stage.hosts = make(map[target]*hostResult, len(order))
	for _, t := range order {
		of := targets[t]
		origin := of[0].route
		if t.listener == nil && !of[0].parent.own {
			of = slices.Concat(of, producers[t.host])
		}
		result := before[t]
		if result == nil || !slices.EqualFunc(result.of, of, func(a, b contribution) bool { return a.route == b.route && (a.parent == b.parent) }) {
			result = &hostResult{of: of, origin: origin.object.Key}
			if t.listener != nil {
				result.object = gatewayHost(t, of)
			} else {
				result.object = meshHost(t, targets[t], producers[t.host])
			}
		}
		r.stage.hosts[t] = result
		r.out.Objects = append(r.out.Objects, derive.Derived{Object: result.object, Origin: result.origin})
	}
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
	owner := t.listener.owner
	name := strings.Join([]string{owner.Namespace, owner.Name, suffix, string(t.listener.Name), t.host}, "~")
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

// forwardOf makes the VirtualService of a TLSRoute or a TCPRoute for a listener. i numbers those of the route.
func (r *run) forwardOf(x *route, a attachment, i int) {
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
	r.out.Objects = append(r.out.Objects, derive.Derived{Object: x.virtualService(fmt.Sprintf("%s~%s~%d~%s", x.object.Name, kind, i, suffix), spec), Origin: x.object.Key})
}
