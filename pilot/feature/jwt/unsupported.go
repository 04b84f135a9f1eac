package jwt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupported returns findings about fields of a policy without the intended effect.
func (m Mode) unsupported(o *kinds.Object) (list []diag.Diagnostic) {
	found := func(code, field, message, fix string) {
		list = append(list, diag.Diagnostic{Severity: diag.Warning, Code: code, Field: field, Message: message, Fix: fix})
	}
	rules := spec(o).JwtRules
	if len(rules) == 0 {
		found("NoRules", "spec.jwtRules", "there are no rules: no token is validated", "add a rule, or remove the policy")
	}
	for i, r := range rules {
		path := rulePath(i)
		if _, changed, err := jwks.Inline(r.Jwks); r.Jwks != "" && err != nil {
			found("NoKeys", path+".jwks", err.Error()+": no token of this rule is accepted", "write a key set of public keys")
		} else if r.Jwks != "" && len(changed) > 0 {
			found("KeysLeftOut", path+".jwks", strings.Join(changed, "; "), "write public keys alone, RSA ones of 2048 bits or more")
		}
		if _, err := (jwks.Remote{Issuer: r.Issuer}).Discovery(); r.Jwks == "" && r.JwksUri == "" && err != nil {
			found("NoKeys", path+".issuer", err.Error()+"; no token of this rule is accepted", "set jwksUri or jwks")
		}
		if m == Proxies && r.Jwks == "" && r.JwksUri != "" && !readable(r.JwksUri) {
			found("NoKeys", path+".jwksUri", "proxies do not accept this URI, and this server fetches no keys: "+noToken,
				"write a URI of a host name or an IP address, without a fragment, or set jwks")
		}
		if r.Timeout.AsDuration() > jwks.MaxTimeout {
			found("TimeoutTooLong", path+".timeout", fmt.Sprintf("keys are fetched within %s at most, and that applies", jwks.MaxTimeout),
				"write a shorter time")
		}
	}
	list = append(list, feature.Unsupported("spec", spec(o), func(field string) (message, fix string) {
		if field == "PolicyTargetReference.namespace" {
			message = "a target is in the policy's own namespace"
		}
		return message, fix
	})...)
	slices.SortFunc(list, func(a, b diag.Diagnostic) int { return cmp.Compare(a.Field, b.Field) })
	return list
}
