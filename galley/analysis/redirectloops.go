package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/servers"
)

// redirectLoops reports rules of VirtualServices whose redirect leads to the URL that was called, at a server of one of
// their Gateways. A rule with other conditions than the path may not match the next request of the client.
func (a *analysis) redirectLoops() {
	compared := comparisons{most: maxComparisons}
	for _, o := range a.judged {
		compared.begin()
		for i, h := range o.Spec.(*networkingv1.VirtualService).Http {
			if h.Redirect == nil || slices.ContainsFunc(h.Match, func(m *networkingv1alpha3.HTTPMatchRequest) bool {
				return len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams)+len(m.Gateways) > 0 || m.Port != 0 ||
					m.Method != nil || m.Scheme != nil || m.Authority != nil
			}) {
				continue
			}
			if gateway, s := a.repeatingServer(o, h.Redirect, &compared); s != nil {
				a.report(o, diag.Warning, codeRedirectLoop, indexed("spec.http", i)+".redirect",
					"give the redirect a Gateway that has only the servers of HTTP, or set tls.httpsRedirect there",
					"at port %d of %s the redirect leads to the URL that was called: clients are redirected without end",
					s.GetPort().GetNumber(), gateway)
			}
		}
		a.uncompared(o, compared)
	}
}

// repeatingServer returns the first server of a Gateway of a VirtualService at which a redirect leads to itself.
func (a *analysis) repeatingServer(
	o *kinds.Object, r *networkingv1alpha3.HTTPRedirect, compared *comparisons,
) (*kinds.Object, *networkingv1alpha3.Server) {
	hosts := o.Spec.(*networkingv1.VirtualService).Hosts
	for _, name := range gatewaysOf(o) {
		g := a.gatewayNamed(name)
		if g == nil {
			continue
		}
		for _, s := range g.Spec.(*networkingv1.Gateway).Servers {
			use := servers.UseOf(s)
			if !use.HTTP() || s.GetTls().GetHttpsRedirect() || !servers.Repeats(r, use, s.GetPort().GetNumber(), false) {
				continue
			}
			if a.servesHost(g, s, o, hosts, compared) {
				return g, s
			}
		}
	}
	return nil, nil
}
