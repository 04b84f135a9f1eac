package analysis

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// claims reports routes that depend on claims of tokens on gateways where no RequestAuthentication reads the tokens.
func (a *analysis) claims() {
	for _, o := range a.judged {
		field := claimField(o.Spec.(*networkingv1.VirtualService))
		if field == "" {
			continue
		}
		for _, g := range gatewaysOf(o) {
			gateway := a.gatewayNamed(g)
			if gateway == nil || a.readsTokens(gateway) {
				continue
			}
			a.report(o, diag.Error, codeClaims, field, "add a RequestAuthentication with the selector of the Gateway",
				"no RequestAuthentication applies to the workloads of %s: claims are never known there, and the match never holds", gateway)
		}
	}
}

// claimField returns the first match of a VirtualService by a claim, or "".
func claimField(spec *networkingv1.VirtualService) string {
	find := func(headers map[string]*networkingv1alpha3.StringMatch) string {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			if strings.HasPrefix(name, "@request.auth.claims") {
				return name
			}
		}
		return ""
	}
	for i, h := range spec.Http {
		for j, m := range h.Match {
			if name := find(m.Headers); name != "" {
				return indexed(indexed("spec.http", i)+".match", j) + ".headers[" + strconv.Quote(name) + "]"
			}
			if name := find(m.WithoutHeaders); name != "" {
				return indexed(indexed("spec.http", i)+".match", j) + ".withoutHeaders[" + strconv.Quote(name) + "]"
			}
		}
	}
	return ""
}

// readsTokens reports whether a RequestAuthentication applies to workloads of a Gateway. If no workload is known, it
// reports whether the selectors are compatible.
func (a *analysis) readsTokens(gateway *kinds.Object) bool {
	selector := gateway.Spec.(*networkingv1.Gateway).Selector
	key := selectionKey{gateway.Namespace, written(selector)}
	reads, known := a.readers[key]
	if !known {
		_, selected := a.gatewaySelection(gateway)
		spaces := selected.namespaces
		reads = slices.ContainsFunc(a.tokenPolicies(), func(o *kinds.Object) bool {
			labels := o.Spec.(*securityv1.RequestAuthentication).GetSelector().GetMatchLabels()
			if len(spaces) == 0 {
				return (o.Namespace == a.root || o.Namespace == gateway.Namespace) && kinds.Selects(labels, selector)
			}
			return slices.ContainsFunc(spaces, func(ns string) bool {
				return (o.Namespace == a.root || o.Namespace == ns) && a.bothSelect(ns, labels, selector)
			})
		})
		a.readers[key] = reads
	}
	return reads
}

// bothSelect reports whether a workload of a namespace has the labels of both selectors. The caller knows that the
// second selects at least one workload.
func (a *analysis) bothSelect(namespace string, first, second map[string]string) bool {
	if len(first) == 0 {
		return true
	}
	return lists.Any(a.selected(namespace, first), func(w *workload) bool { return kinds.Selects(second, w.labels) })
}

// tokenPolicies returns the RequestAuthentications that have rules, one for each namespace and selector.
func (a *analysis) tokenPolicies() []*kinds.Object {
	if a.policies == nil {
		a.policies = []*kinds.Object{}
		there := map[selectionKey]bool{}
		for _, o := range a.of(kinds.RequestAuthentication) {
			spec := o.Spec.(*securityv1.RequestAuthentication)
			key := selectionKey{o.Namespace, written(spec.GetSelector().GetMatchLabels())}
			if len(spec.JwtRules) > 0 && !there[key] {
				there[key] = true
				a.policies = append(a.policies, o)
			}
		}
	}
	return a.policies
}
