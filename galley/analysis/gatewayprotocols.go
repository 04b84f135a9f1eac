package analysis

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/servers"
)

// gatewayProtocols reports rules of VirtualServices for a protocol that no server of their Gateways has.
func (a *analysis) gatewayProtocols() {
	uses := map[string]map[servers.Use]bool{}
	for _, o := range a.of(kinds.Gateway) {
		of := map[servers.Use]bool{}
		for _, s := range o.Spec.(*networkingv1.Gateway).Servers {
			of[servers.UseOf(s)] = true
		}
		uses[o.Namespace+"/"+o.Name] = of
	}
	for _, o := range a.judged {
		spec := o.Spec.(*networkingv1.VirtualService)
		have := map[servers.Use]bool{}
		for _, g := range gatewaysOf(o) {
			if uses[g] == nil { // sidecars, or a Gateway that is not there
				have = nil
				break
			}
			for use := range uses[g] {
				have[use] = true
			}
		}
		if len(have) == 0 || have[servers.Closed] {
			continue
		}
		var all []string
		for use := range have {
			all = append(all, use.String())
		}
		report := func(field, what, fix string, rules int, takers ...servers.Use) {
			if rules > 0 && !slices.ContainsFunc(takers, func(u servers.Use) bool { return have[u] }) {
				a.report(o, diag.Warning, codeUnusedRoutes, field, fix,
					"rules of %s are for servers of %s, and the servers of its Gateways have only %s: the rules have no effect",
					field[len("spec."):], what, listed(all))
			}
		}
		report("spec.http", "HTTP", "terminate TLS at the Gateway, by mode SIMPLE and the protocol HTTPS, or write the rules as tls or tcp",
			len(spec.Http), servers.PlainHTTP, servers.SecureHTTP)
		report("spec.tls", "TLS that is passed through", "give the server of the Gateway mode PASSTHROUGH, or write the rules as http or tcp",
			len(spec.Tls), servers.Passthrough)
		report("spec.tcp", "TCP, or of TLS that is terminated", "write the rules as http or tls",
			len(spec.Tcp), servers.PlainTCP, servers.SecureTCP)
	}
}
