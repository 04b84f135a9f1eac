package analysis

import (
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// virtualHosts reports hosts of VirtualServices that no service has, which sidecars know at few ports.
func (a *analysis) virtualHosts() {
	for _, o := range a.judged {
		spec := o.Spec.(*networkingv1.VirtualService)
		called := a.calledBySidecars(o)
		if !called.known || len(spec.Http) == 0 {
			continue
		}
		for i, written := range spec.Hosts {
			name := names.FQDN(written, o.Namespace, a.domain)
			if len(a.hosts[name]) > 0 || a.meant(written, name) != "" || len(a.hosts[strings.ToLower(written)]) > 0 {
				continue // another finding says so
			}
			a.report(o, diag.Info, codeUnknownHost, indexed("spec.hosts", i),
				"add a ServiceEntry for the host, or bind the routes to gateways alone",
				"no Service or ServiceEntry has the host %s: sidecars use these routes only for HTTP to its port %s", name, portsText(called.requests))
		}
	}
}
