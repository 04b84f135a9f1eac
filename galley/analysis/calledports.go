package analysis

import (
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// calledPorts are the ports at which sidecars use the routes of a VirtualService.
type calledPorts struct {
	requests, connections []uint32
	known                 bool
	virtual               bool // no service has one of the hosts
}

// virtualPort is the port at which sidecars use the routes for a host that no service has.
const virtualPort = 80

// calledBySidecars returns the ports at which sidecars use the routes of a VirtualService: those of its hosts, and port
// 80 for the requests to a host that no service has.
func (a *analysis) calledBySidecars(o *kinds.Object) (all calledPorts) {
	if a.failing() != diag.Error || a.egressDecides() || !slices.Contains(gatewaysOf(o), meshGateway) {
		return calledPorts{}
	}
	for _, written := range o.Spec.(*networkingv1.VirtualService).Hosts {
		name := names.FQDN(written, o.Namespace, a.domain)
		switch p := a.protocolsOfHost(name); {
		case p.known:
			all.requests, all.connections = append(all.requests, p.requestPorts...), append(all.connections, p.connectionPorts...)
		case strings.HasPrefix(name, "*") || len(a.hosts[name]) > 0:
			return calledPorts{}
		default:
			all.requests, all.virtual = append(all.requests, virtualPort), true
		}
		all.known = true
	}
	return all
}

// calledIn returns those of some ports at which sidecars use a route with some matches.
func calledIn[M matchAt](matches []M, ports []uint32) (list []uint32) {
	if len(matches) == 0 {
		return ports
	}
	for _, m := range matches {
		switch {
		case len(m.GetGateways()) > 0 && !slices.Contains(m.GetGateways(), meshGateway):
		case m.GetPort() == 0:
			return ports
		case slices.Contains(ports, m.GetPort()):
			list = append(list, m.GetPort())
		}
	}
	return list
}

// calledPort reports a destination without a port whose service has none of the ports that sidecars call. Sidecars take
// the port that was called, also if the service has only one.
// subject names the destination.
func (v *virtual) calledPort(field, subject, name string, d *networkingv1alpha3.Destination, called []uint32) {
	ports := v.ports(name)
	if d.GetPort().GetNumber() != 0 || len(called) == 0 || len(ports.numbers) == 0 ||
		slices.ContainsFunc(called, func(n uint32) bool { return ports.numbers[n] }) {
		return
	}
	severity := v.severity
	if len(gatewaysOf(v.object)) > 1 {
		severity = min(severity, diag.Warning) // a gateway takes the only port of the service
	}
	v.report(v.object, severity, codeReference, field, "add port: {number: …}, one of its ports: "+ports.text,
		"%s names no port, so sidecars take the one that was called, %s, and %s has no such port: %s",
		subject, portsText(called), name, v.effect)
}

// portsText lists ports.
func portsText(ports []uint32) string {
	return listed(lists.Map(ports, func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }))
}

// virtualHosts reports hosts of VirtualServices that no service has, which sidecars know at few ports.
func (a *analysis) virtualHosts() {
	for _, o := range a.routes {
		spec := o.Spec.(*networkingv1.VirtualService)
		called := a.calledBySidecars(o)
		if !called.known || len(spec.Http) == 0 {
			continue
		}
		for i, written := range spec.Hosts {
			name := names.FQDN(written, o.Namespace, a.domain)
			if len(a.hosts[name]) > 0 || a.meant(written, name) != "" || len(a.hosts[strings.ToLower(written)]) > 0 {
				continue // another finding says so
			}
			a.report(o, diag.Info, codeUnknownHost, indexed("spec.hosts", i),
				"add a ServiceEntry for the host, or bind the routes to gateways alone",
				"no Service or ServiceEntry has the host %s: sidecars use these routes only for HTTP to its port %s", name, portsText(called.requests))
		}
	}
}

// matchPorts reports matches of VirtualServices for a port that neither their hosts nor the servers of their Gateways
// have.
func (a *analysis) matchPorts() {
	opened := map[string][]uint32{} // ports of the servers of Gateways
	for _, o := range a.of(kinds.Gateway) {
		name := o.Namespace + "/" + o.Name
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			opened[name] = append(opened[name], s.GetPort().GetNumber())
		}
	}
	for _, o := range a.routes {
		spec := o.Spec.(*networkingv1.VirtualService)
		m := matchPorts{analysis: a, object: o, opened: opened, called: a.calledBySidecars(o)}
		for i, h := range spec.Http {
			matchEach(&m, indexed("spec.http", i), h.Match, m.called.requests)
		}
		for i, t := range spec.Tls {
			matchEach(&m, indexed("spec.tls", i), t.Match, m.called.connections)
		}
		for i, t := range spec.Tcp {
			matchEach(&m, indexed("spec.tcp", i), t.Match, m.called.connections)
		}
	}
}

// matchEach checks the matches of one route. called has the ports of its protocol that sidecars call.
func matchEach[M matchAt](m *matchPorts, route string, matches []M, called []uint32) {
	for j, match := range matches {
		m.match(indexed(route+".match", j), match.GetPort(), match.GetGateways(), called)
	}
}

// matchAt is a match of HTTP, TLS or TCP.
type matchAt interface {
	GetPort() uint32
	GetGateways() []string
}

// matchPorts is the check of the matches of one VirtualService.
type matchPorts struct {
	*analysis
	object *kinds.Object
	opened map[string][]uint32
	called calledPorts
}

// match reports a match for a port that none of its gateways has. called has the ports of its protocol that sidecars
// call.
func (m *matchPorts) match(field string, port uint32, gateways []string, called []uint32) {
	if port == 0 {
		return
	}
	if len(gateways) == 0 {
		gateways = m.object.Spec.(*networkingv1.VirtualService).Gateways
	}
	if len(gateways) == 0 {
		gateways = []string{meshGateway}
	}
	var all []uint32
	for _, g := range gateways {
		ports := called
		if g != meshGateway {
			ports = m.opened[names.Gateway(g, m.object.Namespace)]
		} else if !m.called.known {
			return
		}
		if len(ports) == 0 || slices.Contains(ports, port) {
			return // a finding of its own says that there is no port
		}
		all = append(all, ports...)
	}
	m.report(m.object, diag.Warning, codeIneffectiveMatch, field+".port", "use one of "+portsText(all),
		"the match has no effect: neither a host of the VirtualService for sidecars nor a server of its Gateways has port %d", port)
}
