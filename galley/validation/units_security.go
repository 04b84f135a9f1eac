package validation

import (
	"slices"
	"strconv"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// targets returns the fields by which security objects select workloads.
func targets() []string { return []string{"selector", "targetRef", "targetRefs"} }

// closePolicy makes an AuthorizationPolicy that denies all, or, if the action is ALLOW, allows nothing. It is for the
// whole namespace if its selector cannot be read.
func closePolicy(s *salvage, chain []step, field string) bool {
	spec := last(chain)
	action := spec.get("action")
	readable := spec.shape == mapping
	s.closed(spec, field)
	switch {
	case readable && (action == nil || action.shape == null || action.shape == text && action.value == "ALLOW"):
	case readable && action.shape == text && action.value == "AUDIT": // it would not have refused anything
		spec.set("action", word("AUDIT"))
	default:
		spec.set("action", word("DENY"))
		spec.set("rules", parsed(`[{}]`))
	}
	return true
}

// closed removes all fields of the spec of a security object but its selectors, and these too if one is at fault.
func (s *salvage) closed(spec *node, field string) {
	if spec.shape != mapping {
		spec.become(&node{shape: mapping})
	}
	if slices.Contains(targets(), field) {
		spec.keep()
		return
	}
	spec.keep(targets()...)
	delete(s.settled, spec) // the selectors may be wrong, too
}

// closeRule makes a rule of a policy that denies match every request, and leaves out a rule of a policy that allows. A
// rule of action CUSTOM makes the policy deny all: it is not known which requests the authorizer would see.
func closeRule(s *salvage, chain []step, _ string) bool {
	switch spec, _ := entryOf(chain); spec.str("action") {
	case "DENY":
		last(chain).become(parsed(`{}`))
		return true
	case "CUSTOM":
		return closePolicy(s, chain[:1], "rules")
	}
	return false
}

func closePeers(s *salvage, chain []step, field string) bool {
	s.closed(last(chain), field)
	last(chain).set("mtls", parsed(`{"mode": "STRICT"}`))
	return true
}

func strictMTLS(_ *salvage, chain []step, _ string) bool {
	last(chain).become(parsed(`{"mode": "STRICT"}`))
	return true
}

// closePorts leaves out the modes of ports, and makes the mode of all ports STRICT if a port is named.
func closePorts(_ *salvage, chain []step, _ string) bool {
	if spec, ports := chain[0].node, last(chain); ports.shape != mapping || len(ports.fields) > 0 {
		spec.set("mtls", parsed(`{"mode": "STRICT"}`))
	}
	return false
}

func closePort(s *salvage, chain []step, _ string) bool {
	if n, err := strconv.Atoi(chain[len(chain)-1].name); err != nil || n < 1 || n > 65535 {
		return false
	}
	return strictMTLS(s, chain, "")
}

// closeAuthentication makes a RequestAuthentication accept no token. Its rules still say where tokens are, which of
// them are required, and which headers are removed from requests, as far as that can be read. Rules that cannot be read
// may require a token.
func closeAuthentication(s *salvage, chain []step, field string) bool {
	spec := last(chain)
	rules := spec.get("jwtRules")
	unread := spec.shape != mapping || rules != nil || diag.NearestField(field, []string{"jwtRules"}) != ""
	s.closed(spec, field)
	if rules == nil || rules.shape != list || field == "jwtRules" {
		rules = parsed(`[{}]`)
		if unread {
			rules = parsed(`[{"presence": "REQUIRED"}]`)
		}
	}
	spec.set("jwtRules", rules)
	for i := range rules.items {
		closeJWTRule(s, append(slices.Clone(chain), step{spec, "jwtRules", rules}, step{rules, anyEntry, rules.items[i]}), "issuer")
	}
	return true
}

// requireToken makes a rule whose presence cannot be read require its token.
func requireToken(_ *salvage, chain []step, _ string) bool {
	last(chain).become(word("REQUIRED"))
	return true
}

// mayRequireToken reports whether a rule refuses requests without its token, as far as it can be read. field is the
// field of the rule at fault. A field that is not known here may require the token too.
func mayRequireToken(rule *node, field string) bool {
	known := field == "" || (&securityv1.JWTRule{}).ProtoReflect().Descriptor().Fields().ByJSONName(field) != nil
	p := rule.get("presence")
	return rule.shape != mapping || !known || p != nil && p.shape != null && p.value != "OPTIONAL"
}

// closeJWTRule makes a rule accept no token, in the places and with the output headers that it names. If it may require
// its token, it refuses all requests.
func closeJWTRule(s *salvage, chain []step, field string) bool {
	rule := last(chain)
	if keys := rule.get("jwks"); field == "jwksUri" && keys != nil && keys.shape == text && keys.value != "" {
		rule.drop(rule.get(field)) // jwks takes precedence over jwksUri, as in istiod
		delete(s.settled, rule)
		return true
	}
	issuer, required := rule.get("issuer"), mayRequireToken(rule, field)
	if rule.shape != mapping {
		rule.become(&node{shape: mapping})
	}
	places := []string{"fromHeaders", "fromParams", "fromCookies"}
	named := slices.ContainsFunc(places, func(p string) bool { return rule.get(p) != nil })
	rule.keep(append(places, "audiences", "outputPayloadToHeader", "outputClaimToHeaders")...)
	for _, p := range append(places, "audiences", "outputClaimToHeaders") {
		if v := rule.get(p); v != nil && (v.shape != list || p == field || len(v.items) == 0) {
			rule.drop(v)
		}
	}
	if named && !slices.ContainsFunc(places, func(p string) bool { return rule.get(p) != nil }) {
		rule.set("fromHeaders", parsed(`[{"name": "`+unusable+`"}]`)) // without any, tokens are looked for in the usual places
	}
	if issuer == nil || issuer.shape != text || issuer.value == "" {
		issuer = word(unusable)
	}
	rule.set("issuer", issuer)
	rule.set("jwks", word(jwks.AcceptsNone))
	if required {
		rule.set("presence", word("REQUIRED"))
	}
	return true
}

// closeClaim names a claim that no token has, so that the header is removed from all requests.
func closeClaim(_ *salvage, chain []step, _ string) bool {
	out := last(chain)
	header := out.str("header")
	if !names.HeaderName(header) || out.str("claim") == unusable {
		return false
	}
	out.become(&node{shape: mapping})
	out.set("header", word(header))
	out.set("claim", word(unusable))
	return true
}
