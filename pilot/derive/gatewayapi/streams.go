package gatewayapi

import (
	"cmp"
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// connections are those of a listener that one TLSRoute or TCPRoute gets. It is the key of the findings about others.
type connections struct {
	listener listenerID
	host     string // that clients ask for, where a listener passes TLS through; empty: all
}

// contender is a route with connections, and the name of what proxies have of it there.
type contender struct {
	*route
	name string
}

// first orders routes as proxies do what they have of them: those of one age by name, and then by namespace.
func (s contender) first(o contender) int {
	return cmp.Or(s.object.Created.Compare(o.object.Created), cmp.Compare(s.name, o.name), cmp.Compare(s.object.Namespace, o.object.Namespace))
}

// connections returns which of a listener's the route is for; none for HTTP.
func (x *route) connections(a attachment) (list []connections) {
	switch {
	case x.object.Kind != kinds.TCPRoute && x.object.Kind != kinds.TLSRoute:
		return nil
	case !a.listener.passthrough():
		return []connections{{listener: a.listener.id()}}
	}
	for _, host := range a.hosts {
		list = append(list, connections{a.listener.id(), host})
	}
	return list
}

// makeIdle adds findings for routes that get no connections because an older one has them.
func (r *run) makeIdle() {
	for c := range r.streamsDue {
		list := r.streams[c]
		if len(list) == 0 {
			delete(r.streams, c)
			r.put(c, derive.Part{})
			continue
		}
		first := slices.MinFunc(list, contender.first)
		what := "all connections"
		if c.host != "" {
			what = "the connections for " + c.host
		}
		what += fmt.Sprintf(" of listener %s of %s", c.listener.name, c.listener.owner)
		var p derive.Part
		for _, x := range list {
			if x.route != first.route {
				p.Findings = append(p.Findings, x.loses(first.route, what))
			}
		}
		r.put(c, p)
	}
}

// loses returns the finding about connections that a route has which comes first.
func (x *route) loses(to *route, what string) diag.Diagnostic {
	of, rule := to.object, "which is older"
	if of.Created.Equal(x.object.Created) {
		rule = "which is as old and sorts first"
	}
	return finding(x.object, diag.Warning, x.object.Kind.Name, "spec.parentRefs", "name another parent, or remove one of the two",
		fmt.Sprintf("%s %s/%s, %s, has %s: this one gets none there", of.Kind.Name, of.Namespace, of.Name, rule, what))
}

// streamName returns the name of the VirtualService of a TLSRoute or a TCPRoute for a listener. i numbers those of the
// route.
func (x *route) streamName(i int) string {
	kind := "tcp"
	if x.object.Kind == kinds.TLSRoute {
		kind = "tls"
	}
	return fmt.Sprintf("%s~%s~%d~%s", x.object.Name, kind, i, suffix)
}

// stream makes the VirtualService of a TLSRoute or a TCPRoute for a listener.
func (x *route) stream(a attachment, name string) {
	if len(x.forwards) == 0 {
		return
	}
	spec := &networkingv1.VirtualService{Hosts: a.hosts, Gateways: []string{a.listener.name}}
	if x.object.Kind == kinds.TLSRoute && a.listener.passthrough() {
		spec.Tls = []*networkingv1alpha3.TLSRoute{{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: a.hosts}}, Route: x.forwards}}
	} else {
		spec.Tcp = []*networkingv1alpha3.TCPRoute{{Route: x.forwards}}
	}
	x.streamed = append(x.streamed, derive.Derived{Object: x.virtualService(name, spec), Origin: x.object.Key})
}
