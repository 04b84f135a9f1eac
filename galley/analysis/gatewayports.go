package analysis

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// gatewayPorts reports servers of Gateways for the same workloads whose port has different protocols, or that have the
// same host, and ports that no Service of the gateway's Pods has.
func (a *analysis) gatewayPorts() {
	type listener struct {
		selector string
		port     uint32
		bind     string
	}
	type server struct {
		gateway *kinds.Object
		*networkingv1alpha3.Server
	}
	servers := map[listener][]server{}
	for _, o := range a.of(kinds.Gateway) {
		spec := o.Spec.(*networkingv1.Gateway)
		exposed := a.exposed(spec.Selector)
		for i, s := range spec.Servers {
			field, number := indexed("spec.servers", i), s.GetPort().GetNumber()
			if exposed != nil && !exposed[number] {
				a.report(o, diag.Warning, codeGatewayPort, field+".port.number", "add the port to the Service of the gateway, or use one that it has",
					"no Service that selects the gateway's Pods has port %d: nobody can reach it by the Service", number)
			}
			key := listener{written(spec.Selector), number, s.Bind}
			for _, other := range servers[key] {
				if other.gateway == o {
					continue
				}
				if mine, theirs := family(s), family(other.Server); mine != theirs {
					a.report(o, diag.Error, codeGateways, field+".port.protocol", "use another port, or the same protocol",
						"%s has port %d for the same workloads as %s, which is %s here: one port has one of them, and the older Gateway's counts", other.gateway, number, theirs, mine)
					break
				}
				if host := common(o, s.Hosts, other.gateway, other.Hosts); host != "" {
					a.report(o, diag.Warning, codeGateways, field+".hosts", "leave the host to one of the two",
						"%s has the host %s on port %d for the same workloads: the older Gateway's server counts for it", other.gateway, host, number)
					break
				}
			}
			servers[key] = append(servers[key], server{o, s})
		}
	}
}

// family returns what has to be the same for all servers of a port.
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

// common returns a host that both lists have for a namespace, or "".
func common(a *kinds.Object, first []string, b *kinds.Object, second []string) string {
	split := func(o *kinds.Object, h string) (ns, host string) {
		ns, host, found := strings.Cut(h, "/")
		switch {
		case !found:
			return "*", ns
		case ns == ".":
			return o.Namespace, host
		}
		return ns, host
	}
	for _, x := range first {
		ns, host := split(a, x)
		if slices.ContainsFunc(second, func(y string) bool {
			other, same := split(b, y)
			return host == same && (ns == other || ns == "*" || other == "*")
		}) {
			return host
		}
	}
	return ""
}

// exposed returns the ports of the Services that select a gateway's Pods, their own and those of the containers; nil
// where there is no such Service.
func (a *analysis) exposed(selector map[string]string) map[uint32]bool {
	var ports map[uint32]bool
	for _, ns := range a.selection("", selector).namespaces {
		var pods []*workload
		for w := range a.selected(ns, selector) {
			if w.pod != nil {
				pods = append(pods, w)
			}
		}
		for _, o := range a.servicesIn(ns) {
			spec := &o.Spec.(*corev1.Service).Spec
			i := slices.IndexFunc(pods, func(w *workload) bool { return kinds.Selects(spec.Selector, w.labels) })
			if i < 0 || len(spec.Selector) == 0 {
				continue
			}
			if ports == nil {
				ports = map[uint32]bool{}
			}
			for _, p := range spec.Ports {
				ports[uint32(p.Port)] = true //nolint:gosec // validated
				if p.TargetPort.Type == intstr.String {
					ports[pods[i].pod.Ports[p.TargetPort.StrVal]] = true
				} else if n := p.TargetPort.IntVal; n != 0 {
					ports[uint32(n)] = true //nolint:gosec // validated
				}
			}
		}
	}
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
