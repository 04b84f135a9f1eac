package analysis

import (
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// splitRules reports policies of action ALLOW with two rules, one with callers alone and one with operations alone.
// Each rule allows by itself, and the author of such a policy often means both together.
func (a *analysis) splitRules() {
	for _, o := range a.of(kinds.AuthorizationPolicy) {
		spec := o.Spec.(*securityv1.AuthorizationPolicy)
		if spec.Action != securityv1.AuthorizationPolicy_ALLOW || len(spec.Rules) != 2 {
			continue
		}
		first, second := spec.Rules[0], spec.Rules[1]
		if len(first.To)+len(first.When)+len(second.From)+len(second.When) == 0 && len(first.From) > 0 && len(second.To) > 0 {
			a.report(o, diag.Info, codeSplitRule, "spec.rules[1]", "if both are meant together, write from and to into one rule, with one dash",
				"spec.rules[0] allows its callers everything, and this rule allows every caller its operations: either is enough")
		}
	}
}
