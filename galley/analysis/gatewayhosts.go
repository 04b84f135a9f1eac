package analysis

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// gatewayHosts reports hosts of VirtualServices that no server of their Gateway has: the gateway never gets a request
// for them.
func (a *analysis) gatewayHosts() {
	for _, o := range a.routes {
		for i, written := range o.Spec.(*networkingv1.VirtualService).Hosts {
			name := names.FQDN(written, o.Namespace, a.domain)
			for _, g := range gatewaysOf(o) {
				ns, short, _ := strings.Cut(g, "/")
				gateway := a.byKey[kinds.Key{Kind: kinds.Gateway, Namespace: ns, Name: short}]
				if gateway == nil || takes(gateway, name, o.Namespace) {
					continue
				}
				a.report(o, diag.Warning, codeGatewayHost, indexed("spec.hosts", i), "add the host to a server of the Gateway, or name another Gateway",
					"no server of %s has the host %s for namespace %s: the gateway takes no requests for it", gateway, name, o.Namespace)
			}
		}
	}
}

// takes reports whether a server of a Gateway has a host, for VirtualServices of a namespace.
func takes(gateway *kinds.Object, host, namespace string) bool {
	for _, s := range gateway.Spec.(*networkingv1.Gateway).Servers {
		if slices.ContainsFunc(s.Hosts, func(h string) bool {
			ns, h := serverHost(gateway, h)
			return (ns == "*" || ns == namespace) && (h == "*" || h == host || names.Overlap(h, host))
		}) {
			return true
		}
	}
	return false
}
