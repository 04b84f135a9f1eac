package virtualservice

import (
	"cmp"
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// mesh is the name of all sidecars among the Gateways of an object.
const mesh = "mesh"

func unsupported(o *kinds.Object) []diag.Diagnostic {
	v := o.Spec.(*networkingv1.VirtualService)
	sidecars := len(v.Gateways) == 0 || slices.Contains(v.Gateways, mesh)
	list := feature.Unsupported("spec", v, func(field string) (message, fix string) {
		switch field {
		case "L4MatchAttributes.destinationSubnets", "L4MatchAttributes.sourceLabels", "TLSMatchAttributes.destinationSubnets",
			"TLSMatchAttributes.sourceLabels":
			if sidecars {
				return "", ""
			}
			return "gateways match connections by port and server name alone", "remove it"
		}
		return lacks(field)
	})
	return append(list, claimsInMesh(v)...)
}

// lacks returns the message and the remedy for an unsupported field, see feature.Unsupported.
func lacks(field string) (message, fix string) {
	switch field {
	case "L4MatchAttributes.sourceSubnet":
		message, fix = "proxies do not match the source address of connections", "use sourceLabels or sourceNamespace"
	case "Delay.exponentialDelay":
		message, fix = "requests are delayed by fixedDelay alone", "use fixedDelay"
	case "Abort.http2Error":
		message, fix = "requests are aborted by httpStatus and grpcStatus alone", "use httpStatus"
	}
	return message, fix
}

// claimsInMesh returns a finding for each match on claims that is for sidecars too, because they do not know the claims
// of the requests that they send.
func claimsInMesh(spec *networkingv1.VirtualService) (list []diag.Diagnostic) {
	for i, r := range spec.Http {
		for j, m := range r.Match {
			gateways := m.Gateways
			if len(gateways) == 0 {
				gateways = spec.Gateways
			}
			if len(gateways) > 0 && !slices.Contains(gateways, mesh) {
				continue
			}
			for field, headers := range map[string]map[string]*networkingv1alpha3.StringMatch{"headers": m.Headers,
				"withoutHeaders": m.WithoutHeaders} {
				for _, name := range sorted(headers) {
					if _, ok := claim(name); ok {
						list = append(list, diag.Diagnostic{
							Severity: diag.Warning, Code: "ClaimsInMesh", Field: fmt.Sprintf("spec.http[%d].match[%d].%s[%q]", i, j, field, name),
							Message: "sidecars do not know the claims of the requests that they send: for them no request has this claim",
							Fix:     "bind the routes to gateways alone",
						})
					}
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b diag.Diagnostic) int { return cmp.Compare(a.Field, b.Field) })
	return list
}
