package analysis

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// trafficPolicies reports DestinationRules of one namespace and host whose trafficPolicy has no effect. Such rules are
// merged, and the first trafficPolicy is in force.
func (a *analysis) trafficPolicies() {
	type target struct{ namespace, host, exportTo string }
	first, owners := map[target]*kinds.Object{}, a.newOwners()
	for _, o := range a.rules {
		spec := o.Spec.(*networkingv1.DestinationRule)
		if spec.WorkloadSelector != nil {
			a.onlyRule(o, owners)
			continue
		}
		if spec.TrafficPolicy == nil {
			continue
		}
		key := target{o.Namespace, names.FQDN(spec.Host, o.Namespace, a.domain), strings.Join(slices.Sorted(slices.Values(spec.ExportTo)), ",")}
		if other := first[key]; other != nil {
			a.report(o, diag.Warning, codePolicies, "spec.trafficPolicy", "merge the two",
				"%s has a trafficPolicy for %s too, and comes first (%s): this one has no effect", other, key.host, precedence(other, o))
			continue
		}
		first[key] = o
	}
}

// onlyRule reports a DestinationRule with a workload selector that has no effect on some workloads. If several such
// rules have the same host, the first is in force.
func (a *analysis) onlyRule(o *kinds.Object, owners *owners) {
	host := names.FQDN(o.Spec.(*networkingv1.DestinationRule).Host, o.Namespace, a.domain)
	field, labels := selectorOf(o)
	rivals := a.rivalsOf(o)
	for _, l := range owners.claim(o, labels, host, o.Namespace) {
		if rivals.name(field, l.winner) {
			a.report(o, diag.Warning, codePolicies, field, "let their selectors match different workloads, or merge the two",
				"%s is for %s and %s too, and comes first (%s): this one has no effect there", l.winner, host, l.at.object, precedence(l.winner, o))
		}
	}
	rivals.end(field)
}
