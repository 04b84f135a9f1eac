package analysis

import (
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// http3 reports servers of Gateways for HTTPS that have no HTTP/3 although the control plane is asked for it: those
// whose port no Service of the gateway has for UDP, and those whose settings could not be kept, or those of another
// server of the Gateway.
func (a *analysis) http3() {
	if !a.options.HTTP3 {
		return
	}
	for _, o := range a.of(kinds.Gateway) {
		spec := o.Spec.(*networkingv1.Gateway)
		ports := a.exposed(spec.Selector)
		if ports == nil {
			continue
		}
		strict := http3.Strict{}
		for _, s := range spec.Servers {
			strict.Add(s)
		}
		for i, s := range spec.Servers {
			if !http3.Terminates(s) {
				continue
			}
			at, number := indexed("spec.servers", i), s.GetPort().GetNumber()
			if !ports.udp[number] {
				a.report(o, diag.Info, codeHTTP3, at+".port.number", "add the port for UDP to the Service of the gateway, or unset "+http3.Variable,
					"no Service that selects the gateway's Pods has port %d for UDP: clients call it by HTTP/2 and HTTP/1.1 only", number)
				continue
			}
			const fix = "leave it so if HTTP/2 and HTTP/1.1 will do; else serve these hosts "
			if field, reason := http3.Refusal(s); field != "" {
				a.report(o, diag.Warning, codeHTTP3, at+"."+field, fix+"without it", "port %d takes no HTTP/3 for the hosts of this server: %s", number, reason)
				continue
			}
			if host := strict.Exposed(s); host != "" {
				a.report(o, diag.Warning, codeHTTP3, at+".hosts", fix+"on another port than "+host,
					"port %d takes no HTTP/3 for the hosts of this server: it would take %s, too, without the certificate that another server demands of clients", number, host)
			}
		}
	}
}
