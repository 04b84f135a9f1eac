package analysis

import (
	"cmp"
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// connectionFilters returns the first object that adds connection filters to a port of a Gateway's workloads, and the
// field that adds them.
func (a *analysis) connectionFilters(gateway *kinds.Object, port uint32) (*kinds.Object, string) {
	workloads, selected := a.gatewaySelection(gateway)
	at := filtered{workloads, port}
	known, ok := a.filters[at]
	if !ok {
		known.object, known.field = a.findFilters(selected.namespaces, gateway.Spec.(*networkingv1.Gateway).Selector, port)
		a.filters[at] = known
	}
	return known.object, known.field
}

// filtered is a port of the workloads that Gateways select.
type filtered struct {
	workloads selectionKey
	port      uint32
}

// filter is an object that adds connection filters, and the field that adds them. The object is nil if there is none.
type filter struct {
	object *kinds.Object
	field  string
}

func (a *analysis) findFilters(namespaces []string, selector map[string]string, port uint32) (*kinds.Object, string) {
	for _, kind := range http3.FilterKinds() {
		for _, o := range a.of(kind) {
			if field := http3.Filters(o, port); field != "" && a.appliesTo(o, namespaces, selector) {
				return o, field
			}
		}
	}
	return nil, ""
}

// appliesTo reports whether an extension or an EnvoyFilter applies to a workload of a Gateway with a selector, in the
// namespaces of the Gateway's workloads.
func (a *analysis) appliesTo(o *kinds.Object, namespaces []string, selector map[string]string) bool {
	var refs []*typev1beta1.PolicyTargetReference
	if p, ok := o.Spec.(interface {
		GetTargetRefs() []*typev1beta1.PolicyTargetReference
	}); ok {
		refs = p.GetTargetRefs()
	}
	_, labels := selectorOf(o)
	for _, ns := range namespaces {
		switch {
		case o.Namespace != ns && o.Namespace != a.root:
		case len(refs) == 0:
			if a.bothSelect(ns, labels, selector) {
				return true
			}
		default:
			for w := range a.selected(ns, selector) {
				if slices.ContainsFunc(refs, func(r *typev1beta1.PolicyTargetReference) bool {
					switch r.GetKind() {
					case kinds.KubeGateway.Name:
						return o.Namespace == ns && w.labels[names.LabelGateway] == r.GetName()
					case kinds.GatewayClass.Name:
						return w.labels[names.LabelGatewayClass] == r.GetName()
					}
					return false
				}) {
					return true
				}
			}
		}
	}
	return false
}

// http3 reports HTTPS servers of Gateways that have no HTTP/3 although the control plane enables it: no Service of the
// gateway has the port for UDP, another object adds connection filters, or the settings of the server or of another one
// cannot be kept. It also reports ports on which PROXY headers are not read over QUIC.
func (a *analysis) http3() {
	if !a.options.HTTP3 {
		return
	}
	headers := a.mesh.GetDefaultConfig().GetGatewayTopology().GetProxyProtocol() != nil
	for _, o := range a.of(kinds.Gateway) {
		spec := o.Spec.(*networkingv1.Gateway)
		ports := a.exposed(o)
		if ports == nil {
			continue
		}
		strict, atTarget := http3.Strict{}, http3.Strict{}
		for _, s := range spec.Servers {
			number := s.GetPort().GetNumber()
			strict.Add(number, s)
			if target := ports.tcp[number]; target != 0 {
				atTarget.Add(target, s)
			}
		}
		for i, s := range spec.Servers {
			if !http3.Terminates(s) {
				continue
			}
			at, number := indexed("spec.servers", i), s.GetPort().GetNumber()
			target, known := ports.udp[number]
			if !known {
				a.report(o, diag.Info, codeHTTP3, at+".port.number", "add the port for UDP to the Service of the gateway, or unset "+http3.Variable,
					"no Service that selects the gateway's Pods has port %d for UDP: clients call it by HTTP/2 and HTTP/1.1 only", number)
				continue
			}
			const fix = "leave it so if HTTP/2 and HTTP/1.1 will do; else serve these hosts "
			if field, reason := http3.Refusal(s); field != "" {
				a.report(o, diag.Warning, codeHTTP3, at+"."+field, fix+"without it",
					"port %d takes no HTTP/3 for the hosts of this server: %s", number, reason)
				continue
			}
			if by, path := a.connectionFilters(o, target); by != nil {
				a.report(o, diag.Warning, codeHTTP3, at+".port.number", "leave it so if HTTP/2 and HTTP/1.1 will do; else have "+
					by.String()+" leave out this port, or name the listener for QUIC in its patch",
					"port %d takes no HTTP/3: %s (%s) adds filters of connections or TLS settings there, which over QUIC would refuse nothing",
					number, by, path)
				continue
			}
			if host := cmp.Or(strict.Exposed(number, s), atTarget.Exposed(ports.tcp[number], s)); host != "" {
				a.report(o, diag.Warning, codeHTTP3, at+".hosts", fix+"on another port than "+host,
					"port %d takes no HTTP/3 for the hosts of this server: "+
						"it would take %s, too, without the certificate that another server demands of clients", number, host)
				continue
			}
			if headers {
				a.report(o, diag.Info, codeHTTP3, at+".port.number",
					"have the load balancer in front of the gateway keep addresses of UDP packets, or leave the port for UDP out of the Service",
					"the mesh asks for PROXY headers (gatewayTopology.proxyProtocol), which come over TCP alone: "+
						"over HTTP/3 port %d takes the sender of a packet for the client", number)
			}
		}
	}
}
