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

// matchAt is a match of HTTP, TLS or TCP.
type matchAt interface {
	GetPort() uint32
	GetGateways() []string
}
