package analysis

import (
	"slices"
	"strings"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// defaultTrustDomain stands for the trust domain of the mesh in whole identities, and for itself in patterns.
const defaultTrustDomain = "cluster.local"

// trustDomains reports patterns of identities in AuthorizationPolicies that begin with cluster.local where the mesh has
// another trust domain.
func (a *analysis) trustDomains() {
	own := a.mesh.GetTrustDomain()
	if own == "" || own == defaultTrustDomain || slices.Contains(a.mesh.GetTrustDomainAliases(), defaultTrustDomain) {
		return
	}
	check := func(o *kinds.Object, field string, values []string) {
		for i, v := range values {
			if rest, found := strings.CutPrefix(v, defaultTrustDomain+"/"); found && strings.HasSuffix(v, "*") {
				a.report(o, diag.Warning, codeNeverMatches, indexed(field, i), "write "+own+"/"+rest,
					"the mesh has the trust domain %s, which stands for cluster.local only in whole identities: no identity begins with %q",
					own, strings.TrimSuffix(v, "*"))
			}
		}
	}
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		for i, r := range o.Spec.(*securityv1.AuthorizationPolicy).Rules {
			rule := indexed("spec.rules", i)
			for j, f := range r.GetFrom() {
				check(o, indexed(rule+".from", j)+".source.principals", f.GetSource().GetPrincipals())
				check(o, indexed(rule+".from", j)+".source.notPrincipals", f.GetSource().GetNotPrincipals())
			}
			for j, w := range r.GetWhen() {
				if w.GetKey() == "source.principal" {
					check(o, indexed(rule+".when", j)+".values", w.GetValues())
					check(o, indexed(rule+".when", j)+".notValues", w.GetNotValues())
				}
			}
		}
	}
}
