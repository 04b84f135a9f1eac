package gatewayapi

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// connections are those of a listener that one TLSRoute or TCPRoute gets. It is the key of the findings about others.
type connections struct {
	listener listenerID
	host     string // that clients ask for, where a listener takes TLS; empty: all
}

// stream is a TLSRoute or a TCPRoute of a listener.
type stream struct {
	*route
	*listener
	parent *parent
	number int // within the route, for the names of what is derived
	claims []*claimant
}

// claimant is a stream that wants connections.
type claimant struct {
	*stream
	of   connections
	won  bool
	lost loss // zero: it has the connections
}

// streamOf is the key of what is derived of a stream.
type streamOf struct {
	route  kinds.Key
	number int
}

func (s *stream) key() streamOf { return streamOf{s.route.object.Key, s.number} }

// connections returns which of a listener's a route with such hosts there is for. Those of a listener with TLS are told
// apart by the name that the client asks for.
func (a attachment) connections() (list []connections) {
	if a.listener.tls == nil {
		return []connections{{listener: a.listener.id()}}
	}
	for _, host := range a.hosts {
		if host == "*" {
			host = a.listener.hostname
		}
		if c := (connections{a.listener.id(), host}); !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// claim has a TLSRoute or a TCPRoute claim its connections of a listener.
func (r *run) claim(x *route, p *parent, a attachment, number int) {
	s := &stream{route: x, listener: a.listener, parent: p, number: number}
	x.streams = append(x.streams, s)
	for _, c := range a.connections() {
		cl := &claimant{stream: s, of: c}
		s.claims = append(s.claims, cl)
		r.streams[c] = append(r.streams[c], cl)
		r.streamsDue[c] = true
	}
}

// unclaim takes the streams of a route back.
func (r *run) unclaim(x *route) {
	for _, s := range x.streams {
		for _, cl := range s.claims {
			r.streams[cl.of] = slices.DeleteFunc(r.streams[cl.of], func(other *claimant) bool { return other == cl })
			r.streamsDue[cl.of] = true
		}
		r.put(s.key(), derive.Part{})
	}
}

// first orders the routes for some connections: the first one has them.
func (c *claimant) first(o *claimant) int {
	return cmp.Or(older(c.route.object, o.route.object), compareKinds(c.route.object, o.route.object), cmp.Compare(c.number, o.number))
}

// makeStreams finds which route has which connections, with findings for those that have none because another has them,
// and makes what is derived of those whose connections are others now.
func (r *run) makeStreams() {
	due := map[*stream]bool{}
	for c := range r.streamsDue {
		list := r.streams[c]
		if len(list) == 0 {
			delete(r.streams, c)
			r.put(c, derive.Part{})
			continue
		}
		first := slices.MinFunc(list, (*claimant).first)
		what := "all connections"
		if c.host != "" {
			what = "the connections for " + c.host
		}
		what += fmt.Sprintf(" of listener %s of %s", c.listener.name, c.listener.owner)
		var p derive.Part
		for _, cl := range list {
			won, lost := cl == first, loss{}
			if cl.route != first.route {
				lost = cl.loses(first.route, c.host, what)
				p.Findings = append(p.Findings, cl.route.finding(lost))
			}
			if cl.lost != lost {
				r.partsDue[cl.route] = true
			}
			if cl.won != won {
				due[cl.stream] = true
			}
			cl.won, cl.lost = won, lost
		}
		r.put(c, p)
	}
	for s := range due {
		r.put(s.key(), derive.Part{Objects: s.derived()})
	}
}

// streamName returns the name of the VirtualService of a stream.
func (s *stream) streamName() string {
	kind := "tcp"
	if s.route.object.Kind == kinds.TLSRoute {
		kind = "tls"
	}
	return fmt.Sprintf("%s~%s~%d~%s", s.route.object.Name, kind, s.number, suffix)
}

// derived returns the VirtualService of a stream, for the connections that it has. Where the listener terminates TLS,
// those for a narrower name than its own are a Gateway's of their own: proxies tell them apart by that alone.
func (s *stream) derived() (list []derive.Derived) {
	if len(s.forwards) == 0 || !s.listener.bound || s.listener.name == "" {
		return nil
	}
	var hosts, narrower []string
	for _, cl := range s.claims {
		if !cl.won {
			continue
		}
		hosts = append(hosts, cmp.Or(cl.of.host, "*"))
		if cl.of.host != "" && cl.of.host != s.hostname {
			narrower = append(narrower, cl.of.host)
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	spec := &networkingv1.VirtualService{Hosts: hosts}
	switch {
	case s.passthrough():
		spec.Gateways = []string{s.listener.name}
		spec.Tls = []*networkingv1alpha3.TLSRoute{{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: hosts}}, Route: s.forwards}}
	default:
		if len(narrower) < len(hosts) {
			spec.Gateways = []string{s.listener.name}
		}
		if len(narrower) > 0 {
			g := s.narrowed(narrower)
			list = append(list, derive.Derived{Object: g, Origin: s.route.object.Key})
			spec.Gateways = append(spec.Gateways, g.Namespace+"/"+g.Name)
		}
		spec.Tcp = []*networkingv1alpha3.TCPRoute{{Route: s.forwards}}
	}
	return append(list, derive.Derived{Object: s.virtualService(s.streamName(), spec), Origin: s.route.object.Key})
}

// narrowed returns the Gateway of Istio of the listener for some of its names.
func (s *stream) narrowed(hosts []string) *kinds.Object {
	server := proto.Clone(s.server).(*networkingv1alpha3.Server)
	server.Hosts = nil
	for _, host := range hosts {
		server.Hosts = append(server.Hosts, "*/"+host)
	}
	return s.istioGateway(fmt.Sprintf("~%s~%s", s.route.object.Namespace, s.route.object.Name), server)
}
