package analysis

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// unusedRoutes reports rules of VirtualServices that no proxy uses for a port of a host, because every port of every
// host has another protocol: HTTP rules for ports whose connections are routed, TLS and TCP rules for HTTP ports.
// Sidecars use HTTP rules for port 80 also if no host has this port. It checks only
// VirtualServices of sidecars, because the servers of a gateway decide its protocol. A port that does not state its
// protocol may have any.
func (a *analysis) unusedRoutes() {
	if a.egressDecides() {
		return
	}
	for _, o := range a.judged {
		spec := o.Spec.(*networkingv1.VirtualService)
		if !slices.Equal(slices.Compact(gatewaysOf(o)), []string{meshGateway}) {
			continue
		}
		have := a.protocolsOf(spec.Hosts, o.Namespace)
		if !have.known {
			if len(spec.Tls)+len(spec.Tcp) > 0 && a.withoutServices(spec.Hosts, o.Namespace) {
				a.report(o, diag.Warning, codeUnusedRoutes, "spec.hosts", "add a ServiceEntry for the host",
					"no Service or ServiceEntry has a host of %s: "+
						"sidecars route the connections of services alone; the rules of tls and tcp have no effect",
					listed(spec.Hosts))
			}
			continue
		}
		report := func(field, protocol, effect, fix string) {
			a.report(o, diag.Warning, codeUnusedRoutes, field, fix,
				"no port of %s is %s: %s; %s", listed(spec.Hosts), protocol, listed(have.ports), effect)
		}
		const effect = "the rules have no effect"
		if len(spec.Http) > 0 && !have.requests {
			instead, only := "tcp", effect
			if len(have.tlsPorts) > 0 {
				instead = "tls"
			}
			if !slices.Contains(have.connectionPorts, virtualPort) {
				only = "sidecars use the rules only for HTTP to port 80"
			}
			report("spec.http", "HTTP", only,
				"name a port of the host for HTTP, such as http-web, or set its appProtocol; or write the rules as "+instead)
		}
		const fix = "write the rules as http, or name a port of the host for another protocol"
		if len(spec.Tls) > 0 && !have.connections {
			report("spec.tls", "TLS", effect, fix)
		}
		if len(spec.Tcp) > 0 && !have.connections {
			report("spec.tcp", "TCP", effect, fix)
		}
	}
}

// egressDecides reports whether a listener of its own, and not the port of a service, may decide which routes apply.
func (a *analysis) egressDecides() bool {
	if a.egress == nil {
		decides := a.mesh.GetProxyHttpPort() != 0 || a.hasEgressPort()
		a.egress = &decides
	}
	return *a.egress
}

// withoutServices reports whether no Service or ServiceEntry has one of some hosts, provided that the objects include
// all Services. A pattern may cover some.
func (a *analysis) withoutServices(hosts []string, namespace string) bool {
	return a.failing() == diag.Error && !slices.ContainsFunc(hosts, func(written string) bool {
		name := names.FQDN(written, namespace, a.domain)
		return strings.HasPrefix(name, "*") || len(a.hosts[name]) > 0
	})
}

// hasEgressPort reports whether a Sidecar has an egress listener with a port, whose protocol then applies instead of
// the services' protocols.
func (a *analysis) hasEgressPort() bool {
	for _, o := range a.of(kinds.Sidecar) {
		for _, l := range o.Spec.(*networkingv1.Sidecar).Egress {
			if l.GetPort() != nil {
				return true
			}
		}
	}
	return false
}

// hostProtocols describes which routes the ports of a host may use.
type hostProtocols struct {
	requests, connections         bool
	requestPorts, connectionPorts []uint32
	tlsPorts                      []uint32 // connectionPorts of HTTPS or TLS
	byNumber                      map[uint32]protocols.Protocol
	ports                         []string // a few of the ports as text
	known                         bool
}

func (p *hostProtocols) add(number uint32, protocol protocols.Protocol) {
	const few = 8
	if protocol == protocols.UDP {
		return
	}
	if _, known := p.byNumber[number]; !known {
		lists.Put(&p.byNumber, number, protocol)
	}
	switch {
	case protocol == protocols.HTTPProxy, protocol.Sniffed():
		p.requestPorts, p.connectionPorts = append(p.requestPorts, number), append(p.connectionPorts, number)
	case protocol.IsHTTP():
		p.requestPorts = append(p.requestPorts, number)
	default:
		p.connectionPorts = append(p.connectionPorts, number)
		if protocol.IsTLS() {
			p.tlsPorts = append(p.tlsPorts, number)
		}
	}
	p.requests, p.connections = len(p.requestPorts) > 0, len(p.connectionPorts) > 0
	if len(p.ports) < few {
		p.ports = append(p.ports, fmt.Sprintf("port %d is %s", number, protocol))
	}
}

// protocolsOf returns the combined protocols of some hosts. They are unknown if they are unknown for one host.
func (a *analysis) protocolsOf(hosts []string, namespace string) (all hostProtocols) {
	for _, text := range hosts {
		p := a.protocolsOfHost(names.FQDN(text, namespace, a.domain))
		if !p.known {
			return hostProtocols{}
		}
		all.requests, all.connections = all.requests || p.requests, all.connections || p.connections
		all.connectionPorts, all.tlsPorts = append(all.connectionPorts, p.connectionPorts...), append(all.tlsPorts, p.tlsPorts...)
		if all.known = true; all.requests && all.connections {
			return all
		}
		all.ports = append(all.ports, p.ports...)
	}
	return all
}

// protocolsOfHost returns the protocols of a host, from a cache.
func (a *analysis) protocolsOfHost(host string) *hostProtocols {
	p := a.protocols[host]
	if p == nil {
		p = a.readProtocols(host)
		lists.Put(&a.protocols, host, p)
	}
	return p
}

func (a *analysis) readProtocols(host string) *hostProtocols {
	p := &hostProtocols{}
	for _, h := range a.hosts[host] {
		switch spec := h.object.Spec.(type) {
		case *corev1.Service:
			if spec.Spec.Type == corev1.ServiceTypeExternalName {
				return &hostProtocols{}
			}
			for i := range spec.Spec.Ports {
				port := &spec.Spec.Ports[i]
				p.add(uint32(port.Port), protocols.OfPort(port)) //nolint:gosec // validated
			}
		case *networkingv1.ServiceEntry:
			for _, port := range spec.Ports {
				p.add(port.Number, protocols.Parse(port.Protocol))
			}
		default:
			return &hostProtocols{}
		}
	}
	p.known = len(p.ports) > 0 && !strings.HasPrefix(host, "*")
	return p
}
