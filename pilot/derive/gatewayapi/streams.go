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

// makeIdle adds findings for routes that get no connections because another one has them: the first by age, then as
// proxies find the VirtualServices that are made of them.
func (r *run) makeIdle() {
	for c := range r.streamsDue {
		list := r.streams[c]
		if len(list) == 0 {
			delete(r.streams, c)
			r.put(c, derive.Part{})
			continue
		}
		first := slices.MinFunc(list, func(a, b *route) int {
			x, y := a.object, b.object
			return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(a.streamName(), b.streamName()), cmp.Compare(x.Namespace, y.Namespace))
		})
		what := "all connections of listener " + string(c.listener.name)
		if c.host != "" {
			what = "the connections for " + c.host + " of listener " + string(c.listener.name)
		}
		var p derive.Part
		for _, x := range list {
			if x != first {
				p.Findings = append(p.Findings, x.loses(first, what))
			}
		}
		r.put(c, p)
	}
}

// loses returns the finding about connections that a route has which comes first.
func (x *route) loses(to *route, what string) diag.Diagnostic {
	of := to.object
	return finding(x.object, diag.Warning, x.object.Kind.Name, "spec.parentRefs", "name another parent, or remove one of the two",
		fmt.Sprintf("%s %s/%s comes first, and has %s: this one gets none there", of.Kind.Name, of.Namespace, of.Name, what))
}

// stream makes the VirtualService of a TLSRoute or a TCPRoute for a listener. i numbers those of the route.
func (x *route) stream(a attachment, i int) {
	if len(x.forwards) == 0 {
		return
	}
	spec := &networkingv1.VirtualService{Hosts: a.hosts, Gateways: []string{a.listener.name}}
	if x.object.Kind == kinds.TLSRoute && a.listener.passthrough() {
		spec.Tls = []*networkingv1alpha3.TLSRoute{{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: a.hosts}}, Route: x.forwards}}
	} else {
		spec.Tcp = []*networkingv1alpha3.TCPRoute{{Route: x.forwards}}
	}
	x.streamed = append(x.streamed, derive.Derived{Object: x.virtualService(fmt.Sprintf("%s~%d~%s", x.streamName(), i, suffix), spec), Origin: x.object.Key})
}

// streamName returns what the names of the VirtualServices of a TLSRoute or a TCPRoute begin with.
func (x *route) streamName() string {
	if x.object.Kind == kinds.TLSRoute {
		return x.object.Name + "~tls"
	}
	return x.object.Name + "~tcp"
}
