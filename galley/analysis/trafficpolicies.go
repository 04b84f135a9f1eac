package analysis

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// trafficPolicies reports DestinationRules of one namespace and host whose trafficPolicy has no effect: rules are
// merged, and the first that has one counts.
func (a *analysis) trafficPolicies() {
	type target struct{ namespace, host, exportTo string }
	first := map[target]*kinds.Object{}
	for _, o := range a.rules {
		spec := o.Spec.(*networkingv1.DestinationRule)
		if spec.TrafficPolicy == nil || spec.WorkloadSelector != nil {
			continue
		}
		key := target{o.Namespace, names.FQDN(spec.Host, o.Namespace, a.domain), strings.Join(slices.Sorted(slices.Values(spec.ExportTo)), ",")}
		if other := first[key]; other != nil {
			a.report(o, diag.Warning, codePolicies, "spec.trafficPolicy", "merge the two", "%s has a trafficPolicy for %s too, and is the older one or sorts first: this one has no effect", other, key.host)
			continue
		}
		first[key] = o
	}
}
