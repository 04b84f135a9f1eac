package analysis

import (
	"maps"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// tokenIdentities reports policies that read tokens where no RequestAuthentication accepts a token, or none of the
// issuer. Without one a request has no claims.
func (a *analysis) tokenIdentities() {
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		field, issuers := tokenFields(spec)
		if field == "" || a.validatesTokensItself(o.Namespace) {
			continue
		}
		accepted := a.acceptedIssuers(o, spec)
		if len(accepted) == 0 {
			a.report(o, diag.Warning, codeTokenPolicy, field, "add a RequestAuthentication for the same workloads",
				"no RequestAuthentication applies to the workloads of this policy: their requests have no token that was validated, and no claims")
			continue
		}
		for _, i := range issuers {
			if accepted[""] || accepted[i.name] {
				continue
			}
			list := slices.Sorted(maps.Keys(accepted))
			fix := "add the issuer to a RequestAuthentication; the policies there have " + listed(list)
			if near := a.nearest(i.name, list); near != "" {
				fix = diag.DidYouMean(near)
			}
			a.report(o, diag.Warning, codeTokenPolicy, i.field, fix,
				"no RequestAuthentication that applies has the issuer %q: no token of this issuer is accepted", i.name)
		}
	}
}

// acceptedIssuers returns the issuers of the RequestAuthentications that may apply to workloads of an
// AuthorizationPolicy. A rule without an issuer accepts all, and adds "". It does not compare targets.
func (a *analysis) acceptedIssuers(o *kinds.Object, spec *securityv1.AuthorizationPolicy) map[string]bool {
	labels := spec.GetSelector().GetMatchLabels()
	if len(targetsOf(spec)) > 0 {
		labels = nil // compatible with all
	}
	key := selectionKey{o.Namespace, written(labels)}
	accepted := a.accepted[key]
	if accepted == nil {
		accepted = map[string]bool{}
		lists.Put(&a.accepted, key, accepted)
		spaces := []string{o.Namespace, a.root}
		if o.Namespace == a.root {
			spaces = []string{everyNamespace}
		}
		for _, ns := range spaces {
			for r := range a.sharing(kinds.RequestAuthentication, ns, labels) {
				for _, rule := range r.Spec.(*securityv1.RequestAuthentication).JwtRules {
					accepted[rule.Issuer] = true
				}
			}
		}
	}
	return accepted
}

// issuerAt is an issuer, and the field that names it.
type issuerAt struct{ name, field string }

// tokenFields returns the first field of a policy that reads tokens, or "", and the issuers that its values name.
func tokenFields(spec *securityv1.AuthorizationPolicy) (first string, issuers []issuerAt) {
	add := func(field string, values []string, principals bool) {
		for i, v := range values {
			at := indexed(field, i)
			if first == "" {
				first = at
			}
			if slash := strings.LastIndexByte(v, '/'); principals && slash > 0 && !strings.HasPrefix(v, "*") && v[slash+1:] != "" {
				issuers = append(issuers, issuerAt{v[:slash], at})
			}
		}
	}
	for i, r := range spec.Rules {
		rule := indexed("spec.rules", i)
		for j, f := range r.GetFrom() {
			source := indexed(rule+".from", j) + ".source"
			add(source+".requestPrincipals", f.GetSource().GetRequestPrincipals(), true)
			add(source+".notRequestPrincipals", f.GetSource().GetNotRequestPrincipals(), true)
		}
		for j, w := range r.GetWhen() {
			if strings.HasPrefix(w.GetKey(), "request.auth.") {
				principals := w.GetKey() == "request.auth.principal"
				add(indexed(rule+".when", j)+".values", w.GetValues(), principals)
				add(indexed(rule+".when", j)+".notValues", w.GetNotValues(), principals)
			}
		}
	}
	return first, issuers
}

// validatesTokensItself reports whether an EnvoyFilter that may apply in a namespace mentions the filter of tokens.
func (a *analysis) validatesTokensItself(namespace string) bool {
	if a.ownTokens == nil {
		a.ownTokens = map[string]bool{}
		for _, o := range a.of(kinds.EnvoyFilter) {
			if strings.Contains(o.Spec.(*networkingv1alpha3.EnvoyFilter).String(), "jwt_authn") {
				a.ownTokens[o.Namespace] = true
			}
		}
	}
	return a.ownTokens[namespace] || a.ownTokens[a.root] || namespace == a.root && len(a.ownTokens) > 0
}
