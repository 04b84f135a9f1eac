package analysis

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// listener is a port of the workloads with some labels.
type listener struct {
	selector string
	port     uint32
	bind     string
}

// claim is a host that a server of a Gateway has for VirtualServices of a namespace. Namespace "*" stands for all
// namespaces, "" for any of them.
type claim struct {
	listener
	namespace, host string
}

// gatewayPorts reports three faults: servers of Gateways for the same workloads whose port has different protocols,
// servers with the same host, and ports that no Service of the gateway's Pods has.
func (a *analysis) gatewayPorts() {
	type server struct {
		gateway *kinds.Object
		family  string
	}
	first := map[listener]server{}
	claims := map[claim]*kinds.Object{} // first Gateway with each claim
	for _, o := range a.of(kinds.Gateway) {
		spec := o.Spec.(*networkingv1.Gateway)
		selector, exposed := written(spec.Selector), a.exposed(spec.Selector)
		for i, s := range spec.Servers {
			field, number := indexed("spec.servers", i), s.GetPort().GetNumber()
			if exposed != nil && !exposed.any[number] {
				a.report(o, diag.Warning, codeGatewayPort, field+".port.number", "add the port to the Service of the gateway, or use one that it has",
					"no Service that selects the gateway's Pods has port %d: clients cannot reach it through the Service", number)
			}
			l, mine := listener{selector, number, s.Bind}, family(s)
			other, known := first[l]
			if !known {
				other = server{o, mine}
				first[l] = other
			}
			if other.family != mine {
				if other.gateway != o {
					a.report(o, diag.Error, codeGateways, field+".port.protocol", "use another port, or the same protocol",
						"%s has port %d for the same workloads as %s, which is %s here: one port has one of them, and that Gateway's counts (%s)",
						other.gateway, number, other.family, mine, precedence(other.gateway, o))
				}
				continue
			}
			if rival, host := contender(claims, l, o, s.Hosts); rival != nil {
				a.report(o, diag.Warning, codeGateways, field+".hosts", "leave the host to one of the two",
					"%s has the host %s on port %d for the same workloads: its server is used for it (%s)", rival, host, number, precedence(rival, o))
			}
			for _, text := range s.Hosts {
				ns, host := serverHost(o, text)
				for _, c := range []claim{{l, ns, host}, {l, "", host}} {
					claims[c] = cmp.Or(claims[c], o)
				}
			}
		}
	}
}

// contender returns the first other Gateway that claims one of the hosts for the same namespace, and the host. It
// returns nil if there is none. The caller records the claims of o after those of all earlier Gateways.
func contender(claims map[claim]*kinds.Object, l listener, o *kinds.Object, hosts []string) (*kinds.Object, string) {
	for _, text := range hosts {
		ns, host := serverHost(o, text)
		same := []claim{{l, ns, host}, {l, "*", host}}
		if ns == "*" {
			same = []claim{{l, "", host}}
		}
		for _, c := range same {
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

// family returns the kind of protocol that all servers of a port must share.
func family(s *networkingv1alpha3.Server) string {
	switch protocol := strings.ToUpper(s.GetPort().GetProtocol()); protocol {
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB":
		return "HTTP"
	case "HTTPS", "TLS":
		return "TLS"
	default:
		if s.Tls != nil {
			return "TLS"
		}
		return protocol
	}
}

// exposedPorts are the ports of the Services that select a gateway's Pods.
type exposedPorts struct {
	any map[uint32]bool   // Service ports and container ports
	tcp map[uint32]uint32 // container port by Service port, for TCP; 0 if unknown
	udp map[uint32]uint32 // container port by Service port, for UDP; 0 if unknown
}

// exposed returns the ports of the Services that select a gateway's Pods, or nil if there is no such Service.
func (a *analysis) exposed(selector map[string]string) *exposedPorts {
	key := written(selector)
	ports, known := a.opened[key]
	if known {
		return ports
	}
	groups, seen := a.servicesOf(), map[*serviceGroup]bool{}
	for _, ns := range a.selection("", selector).namespaces {
		for w := range a.selected(ns, selector) {
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
