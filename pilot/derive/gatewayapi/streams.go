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

// connections identifies connections of a listener that one TLSRoute or TCPRoute gets. It is the key of the findings
// about other routes.
type connections struct {
	listener listenerID
	host     string // server name that clients ask for, if a listener takes TLS; empty for all
}

// stream is a TLSRoute or a TCPRoute at a listener.
type stream struct {
	*route
	*listener
	parent *parent
	number int // number within the route, for the names of derived objects
	claims []*claimant
}

// claimant is a stream that competes for connections.
type claimant struct {
	*stream
	of   connections
	won  bool
	lost loss // zero if it has the connections
}

// streamOf is the key of the part of a stream.
type streamOf struct {
	route  kinds.Key
	number int
}

func (s *stream) key() streamOf { return streamOf{s.route.object.Key, s.number} }

// connections returns the connections of a listener that a route with such hosts is for. At a listener with TLS they
// differ by the name that the client asks for.
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

// claim adds a TLSRoute or a TCPRoute to the claimants of connections of a listener.
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

// unclaim removes the streams of a route.
func (r *run) unclaim(x *route) {
	for _, s := range x.streams {
		for _, cl := range s.claims {
			r.streams[cl.of] = slices.DeleteFunc(r.streams[cl.of], func(other *claimant) bool { return other == cl })
			r.streamsDue[cl.of] = true
		}
		r.put(s.key(), derive.Part{})
	}
}

// first orders the claimants of connections: the first one has them.
func (c *claimant) first(o *claimant) int {
	return cmp.Or(older(c.route.object, o.route.object), compareKinds(c.route.object, o.route.object), cmp.Compare(c.number, o.number))
}

// makeStreams decides which route has which connections, makes findings for routes that lose them to another, and
// derives the objects of streams whose connections have changed.
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

// derived returns the VirtualService of a stream, for the connections that it has. If the listener terminates TLS,
// connections for a narrower name than the listener's need a Gateway of their own, because proxies tell them apart only
// by their Gateway.
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
