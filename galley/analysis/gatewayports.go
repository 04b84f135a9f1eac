package analysis

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/servers"
)

// listener is a port of the workloads with some labels.
type listener struct {
	workloads selectionKey
	port      uint32
	bind      string
}

// sharing is the servers of a listener that are in force.
type sharing struct {
	servers.Port
	first    *kinds.Object
	use      servers.Use   // of the first
	every    *kinds.Object // Gateway of the server that takes every connection that no server name tells apart; nil if there is none
	everyUse servers.Use
}

// claim is a host that a server of a Gateway has for VirtualServices of a namespace. Namespace "*" stands for all
// namespaces, "" for any of them.
type claim struct {
	listener
	tls             bool
	namespace, host string
}

// gatewayPorts reports three faults: servers of Gateways for the same workloads whose port has different protocols,
// servers with the same host, and ports that no Service of the gateway's Pods has.
func (a *analysis) gatewayPorts() {
	ports := map[listener]*sharing{}
	claims := map[claim]*kinds.Object{} // first Gateway with each claim
	for _, o := range a.of(kinds.Gateway) {
		spec := o.Spec.(*networkingv1.Gateway)
		workloads, _ := a.gatewaySelection(o)
		exposed := a.exposed(o)
		for i, s := range spec.Servers {
			field, number := indexed("spec.servers", i), s.GetPort().GetNumber()
			if exposed != nil && !exposed.any[number] {
				a.report(o, diag.Warning, codeGatewayPort, field+".port.number", "add the port to the Service of the gateway, or use one that it has",
					"no Service that selects the gateway's Pods has port %d: clients cannot reach it through the Service", number)
			}
			l, use := listener{workloads, number, s.Bind}, servers.UseOf(s)
			if use == servers.Closed {
				continue // another finding says so
			}
			if ports[l] == nil {
				ports[l] = &sharing{first: o, use: use}
			}
			if !a.shares(ports[l], o, s, use, field) {
				continue
			}
			switch rival, host := contender(claims, claim{listener: l, tls: use.TLS()}, o, s.Hosts); {
			case rival != nil && use == servers.PlainHTTP:
				a.report(o, diag.Warning, codeGateways, field+".hosts", "leave the host to one of the two, or ignore this if it is meant",
					"%s has the host %s on port %d for the same workloads: the routes of both Gateways are in force for it together",
					rival, host, number)
			case rival != nil:
				a.report(o, diag.Warning, codeGateways, field+".hosts", "leave the host to one of the two",
					"%s has the host %s on port %d for the same workloads: its server is used for it (%s)", rival, host, number, precedence(rival, o))
			}
			for _, text := range s.Hosts {
				ns, host := serverHost(o, text)
				for _, in := range []string{ns, ""} {
					c := claim{l, use.TLS(), in, host}
					claims[c] = cmp.Or(claims[c], o)
				}
			}
		}
	}
}

// shares reports whether a server can share its port with the servers before it. It reports a server that cannot as a
// finding, but leaves servers of one Gateway to the check of that Gateway.
func (a *analysis) shares(port *sharing, o *kinds.Object, s *networkingv1alpha3.Server, use servers.Use, field string) bool {
	number := s.GetPort().GetNumber()
	if !port.Fits(use) {
		if port.first != o {
			a.report(o, diag.Error, codeGateways, field+".port.protocol", "use another port, or the same protocol",
				"%s has port %d for the same workloads as %s, and comes first (%s): no server of %s fits beside it, so this one is not served",
				port.first, number, port.use, precedence(port.first, o), use)
		}
		return false
	}
	switch {
	case use == servers.PlainHTTP && port.every != nil && port.everyUse == use: // they share a chain
		return true
	case !use.HTTP(): // it is there if a VirtualService has a route for it
		return true
	}
	var hosts []string
	for _, text := range s.Hosts {
		_, host := serverHost(o, text)
		hosts = append(hosts, host)
	}
	free, _ := port.Claim(use, hosts)
	every := !use.TLS() || slices.Contains(hosts, "*")
	switch {
	case len(free) > 0 && every:
		port.every, port.everyUse = o, use
	case len(free) == 0 && every && port.every != nil && port.everyUse != use && port.every != o:
		a.report(o, diag.Error, codeGateways, field+".port.protocol", "use another port, or name the hosts of the server of TLS",
			"%s has port %d for the same workloads as %s for any host, and comes first (%s): "+
				"no connection is left for %s, so this server is not served",
			port.every, number, port.everyUse, precedence(port.every, o), use)
		return false
	}
	return true
}

// contender returns the first other Gateway that claims one of the hosts for the same namespace, and the host. It
// returns nil if there is none. The caller records the claims of o after those of all earlier Gateways.
func contender(claims map[claim]*kinds.Object, at claim, o *kinds.Object, hosts []string) (*kinds.Object, string) {
	for _, text := range hosts {
		ns, host := serverHost(o, text)
		namespaces := []string{ns, "*"}
		if ns == "*" {
			namespaces = []string{""}
		}
		for _, in := range namespaces {
			c := claim{at.listener, at.tls, in, host}
			if other := claims[c]; other != nil && other != o {
				return other, host
			}
		}
	}
	return nil, ""
}

// serverHost returns the namespace and the host of an entry of a server's hosts, in lower case. The namespace is "*" if
// the entry has none.
func serverHost(gateway *kinds.Object, text string) (namespace, host string) {
	text = strings.ToLower(text)
	namespace, host, found := strings.Cut(text, "/")
	switch {
	case !found:
		return "*", text
	case namespace == ".":
		return gateway.Namespace, host
	}
	return namespace, host
}

// exposedPorts are the ports of the Services that select a gateway's Pods.
type exposedPorts struct {
	any map[uint32]bool   // Service ports and container ports
	tcp map[uint32]uint32 // container port by Service port, for TCP; 0 if unknown
	udp map[uint32]uint32 // container port by Service port, for UDP; 0 if unknown
}

// exposed returns the ports of the Services that select a gateway's Pods, or nil if there is no such Service.
func (a *analysis) exposed(gateway *kinds.Object) *exposedPorts {
	key, selected := a.gatewaySelection(gateway)
	ports, known := a.opened[key]
	if known {
		return ports
	}
	groups, seen := a.servicesOf(), map[*serviceGroup]bool{}
	for _, ns := range selected.namespaces {
		for w := range a.selected(ns, gateway.Spec.(*networkingv1.Gateway).Selector) {
			if w.pod == nil {
				continue
			}
			for _, g := range groups[w] {
				if seen[g] {
					continue
				}
				seen[g] = true
				if ports == nil {
					ports = &exposedPorts{map[uint32]bool{}, map[uint32]uint32{}, map[uint32]uint32{}}
				}
				for _, o := range g.services {
					list := o.Spec.(*corev1.Service).Spec.Ports
					for i := range list {
						number := uint32(list[i].Port) //nolint:gosec // validated
						ports.any[number] = true
						if n := targetPort(&list[i], w); n != 0 {
							ports.any[n] = true
						}
						of := ports.tcp
						if list[i].Protocol == corev1.ProtocolUDP {
							of = ports.udp
						}
						of[number] = targetPort(&list[i], w)
					}
				}
			}
		}
	}
	a.opened[key] = ports
	return ports
}

// servicesIn returns the Services of a namespace, by precedence.
func (a *analysis) servicesIn(namespace string) []*kinds.Object {
	if a.inNamespace == nil {
		a.inNamespace = map[string][]*kinds.Object{}
		for _, o := range a.services {
			a.inNamespace[o.Namespace] = append(a.inNamespace[o.Namespace], o)
		}
	}
	return a.inNamespace[namespace]
}
