package analysis

import (
	"cmp"
	"fmt"
	"slices"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// issuers reports RequestAuthentications that apply to one workload and have an issuer with different keys or
// audiences. Proxies accept a token that any of the rules accepts.
func (a *analysis) issuers() {
	type wide struct{ namespace, issuer string }
	first := map[wide]*kinds.Object{} // policies for all workloads of a namespace
	owners := a.newOwners()
	each := func(selecting bool, visit func(o *kinds.Object, labels map[string]string, r *securityv1.JWTRule, field string, rivals *rivals)) {
		for _, o := range a.of(kinds.RequestAuthentication) {
			spec := o.Spec.(*securityv1.RequestAuthentication)
			labels := spec.GetSelector().GetMatchLabels()
			if spec.TargetRef != nil || len(spec.TargetRefs) > 0 || len(labels) > 0 != selecting {
				continue
			}
			rivals, seen := a.rivalsOf(o), map[string]bool{}
			for i, r := range spec.JwtRules {
				if r.Issuer != "" && !seen[r.Issuer] {
					seen[r.Issuer] = true
					visit(o, labels, r, indexed("spec.jwtRules", i)+".issuer", rivals)
				}
			}
			rivals.end("spec.jwtRules")
		}
	}
	compare := func(o, other *kinds.Object, r *securityv1.JWTRule, field, where string, rivals *rivals) {
		differs := func(of *securityv1.JWTRule) bool { return of.Issuer == r.Issuer && judgement(of) != judgement(r) }
		if other == nil || other == o ||
			!slices.ContainsFunc(other.Spec.(*securityv1.RequestAuthentication).JwtRules, differs) || !rivals.name(field, other) {
			return
		}
		a.report(o, diag.Warning, codeIssuer, field, "merge the two, or have one list all keys and audiences",
			"%s has the issuer %q too, with other keys or audiences, for %s: a token that either of the two accepts comes in",
			other, r.Issuer, where)
	}
	each(false, func(o *kinds.Object, _ map[string]string, r *securityv1.JWTRule, field string, rivals *rivals) {
		own := wide{o.Namespace, r.Issuer}
		compare(o, first[own], r, field, "the same workloads", rivals)
		first[own] = cmp.Or(first[own], o)
	})
	each(false, func(o *kinds.Object, _ map[string]string, r *securityv1.JWTRule, field string, rivals *rivals) {
		if o.Namespace != a.root {
			compare(o, first[wide{a.root, r.Issuer}], r, field, "all workloads of the mesh", rivals)
		}
	})
	each(true, func(o *kinds.Object, labels map[string]string, r *securityv1.JWTRule, field string, rivals *rivals) {
		compare(o, first[wide{a.root, r.Issuer}], r, field, "all workloads of the mesh", rivals)
		spaces := []string{o.Namespace}
		if o.Namespace == a.root {
			spaces = a.selection("", labels).namespaces
		} else {
			compare(o, first[wide{o.Namespace, r.Issuer}], r, field, "all workloads of the namespace", rivals)
		}
		for _, l := range owners.claim(o, labels, r.Issuer, spaces...) {
			compare(o, l.winner, r, field, l.at.object.String(), rivals)
		}
	})
}

// judgement returns the fields that decide which tokens of its issuer a rule accepts, as text.
func judgement(r *securityv1.JWTRule) string {
	return fmt.Sprintf("%q %q %q", r.JwksUri, r.Jwks, slices.Sorted(slices.Values(r.Audiences)))
}
