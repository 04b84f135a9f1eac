package analysis

import (
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// openedTo is a Gateway and a namespace of VirtualServices that the Gateway has hosts for; "*" is any namespace.
type openedTo struct {
	gateway   *kinds.Object
	namespace string
}

// gatewayHosts reports hosts of VirtualServices that no server of their Gateway has, so that the gateway never gets a
// request for them.
func (a *analysis) gatewayHosts() {
	hosts := map[openedTo]*names.HostIndex[struct{}]{}
	for _, o := range a.of(kinds.Gateway) {
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			for _, text := range s.Hosts {
				ns, h := serverHost(o, text)
				to := openedTo{o, ns}
				if hosts[to] == nil {
					hosts[to] = &names.HostIndex[struct{}]{}
				}
				hosts[to].Add(h, struct{}{})
			}
		}
	}
	for _, o := range a.routes {
		for i, written := range o.Spec.(*networkingv1.VirtualService).Hosts {
			name := names.FQDN(written, o.Namespace, a.domain)
			for _, g := range gatewaysOf(o) {
				gateway := a.gatewayNamed(g)
				if gateway == nil || hosts[openedTo{gateway, "*"}].Overlaps(name) || hosts[openedTo{gateway, o.Namespace}].Overlaps(name) {
					continue
				}
				a.report(o, diag.Warning, codeGatewayHost, indexed("spec.hosts", i), "add the host to a server of the Gateway, or name another Gateway",
					"no server of %s has the host %s for namespace %s: the gateway takes no requests for it", gateway, name, o.Namespace)
			}
		}
	}
}
