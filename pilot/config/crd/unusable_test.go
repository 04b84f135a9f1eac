package crd

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

func policy(principal any, uid string) object {
	return object{"metadata": object{"uid": uid}, "spec": object{
		"selector": object{"matchLabels": object{"app": "x"}},
		"rules":    []any{object{"from": []any{object{"source": object{"principals": []any{principal}}}}}},
	}}
}

func TestSecurityObjectsFailClosed(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.AuthorizationPolicy, kinds.PeerAuthentication, kinds.RequestAuthentication)
	const policies = "authorizationpolicies.security.istio.io"
	a.put(policies, "a", "bad", policy(1, "1"))
	a.put(policies, "a", "worse", object{"spec": object{"selector": 1, "rules": 2}})
	a.put(policies, "a", "worst", object{"spec": 1})
	a.put(policies, "a", "denies", object{"spec": object{"action": "DENY", "rules": 2}})
	a.put(policies, "a", "asks", object{"spec": object{"action": "CUSTOM", "newerField": 1}})
	a.put(policies, "a", "logs", object{"spec": object{"action": "AUDIT", "rules": 2}})
	a.put(
		"peerauthentications.security.istio.io", "a", "p",
		object{"spec": object{"selector": object{"matchLabels": object{"app": "x"}}, "mtls": object{"mode": "NEWER"}}},
	)
	a.put(
		"requestauthentications.security.istio.io", "a", "r",
		object{"spec": object{"jwtRules": []any{object{"issuer": "a", "newerField": 1}}}},
	)
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.AuthorizationPolicy, kinds.PeerAuthentication, kinds.RequestAuthentication}})
	r.synced()
	bad := r.get(kinds.AuthorizationPolicy, "a", "bad")
	if p := bad.Spec.(*securityv1.AuthorizationPolicy); len(p.Rules) != 0 || p.Action != 0 || p.Selector.MatchLabels["app"] != "x" {
		t.Errorf("%v", p)
	}
	if p := r.get(kinds.AuthorizationPolicy, "a", "worse").Spec.(*securityv1.AuthorizationPolicy); len(p.Rules) != 0 || p.Action != 0 ||
		p.Selector != nil {
		t.Errorf("%v", p)
	}
	// What may have denied denies everything: another policy may allow what it was to refuse.
	for _, name := range []string{"worst", "denies", "asks"} {
		if p := r.get(
			kinds.AuthorizationPolicy, "a", name,
		).Spec.(*securityv1.AuthorizationPolicy); p.Action != securityv1.AuthorizationPolicy_DENY || len(p.Rules) != 1 ||
			p.Rules[0].From != nil || p.Selector != nil {
			t.Errorf("%v", p)
		}
	}
	if p := r.get(
		kinds.AuthorizationPolicy, "a", "logs",
	).Spec.(*securityv1.AuthorizationPolicy); p.Action != securityv1.AuthorizationPolicy_AUDIT || len(p.Rules) != 0 {
		t.Errorf("%v", p)
	}
	if p := r.get(
		kinds.PeerAuthentication, "a", "p",
	).Spec.(*securityv1.PeerAuthentication); p.Mtls.Mode != securityv1.PeerAuthentication_MutualTLS_STRICT ||
		p.Selector.MatchLabels["app"] != "x" {
		t.Errorf("%v", p)
	}
	if p := r.get(kinds.RequestAuthentication, "a", "r").Spec.(*securityv1.RequestAuthentication); len(p.JwtRules) != 1 ||
		p.JwtRules[0].Jwks != jwks.AcceptsNone {
		t.Errorf("%v", p)
	}
	until(t, "a finding for each", func() bool {
		unusable := map[string]bool{}
		for _, d := range r.Findings() {
			unusable[d.Object] = unusable[d.Object] || d.Severity == diag.Error && d.Code == "Unusable"
		}
		return len(unusable) == 8 && unusable["AuthorizationPolicy a/bad"]
	})

	// A policy that only allows does so by what can be read of its newest version.
	a.put(policies, "a", "bad", policy("p1", "1"))
	principal := func() string {
		p := r.get(kinds.AuthorizationPolicy, "a", "bad").Spec.(*securityv1.AuthorizationPolicy)
		if len(p.Rules) == 0 {
			return ""
		}
		return p.Rules[0].From[0].Source.Principals[0]
	}
	until(t, "mended", func() bool { return principal() == "p1" })
	a.put(policies, "a", "bad", policy(1, "1"))
	until(t, "the new version, which allows nothing that can be read", func() bool { return principal() == "" })
	a.put(policies, "a", "bad", policy("p2", "1"))
	until(t, "mended again", func() bool { return principal() == "p2" })

	// A policy that denies stays in force, and what can be read of the next one is in force beside it.
	denies := func(paths ...any) object {
		rules := []any{}
		for _, p := range paths {
			rules = append(rules, object{"to": []any{object{"operation": object{"paths": []any{p}}}}})
		}
		return object{"metadata": object{"uid": "3"}, "spec": object{"action": "DENY", "rules": rules}}
	}
	inForce := func(name string) string {
		o := r.get(kinds.AuthorizationPolicy, "a", name)
		if o == nil {
			return "none"
		}
		p := o.Spec.(*securityv1.AuthorizationPolicy)
		text := p.Action.String()
		for _, rule := range p.Rules {
			for _, to := range rule.To {
				text += " " + to.Operation.Paths[0]
			}
			if len(rule.To) == 0 {
				text += " all"
			}
		}
		return text
	}
	a.put(policies, "a", "guard", denies("/a"))
	until(t, "denied", func() bool { return inForce("guard") == "DENY /a" })
	a.put(policies, "a", "guard", denies("/b", 1))
	until(t, "both denied", func() bool { return inForce("guard") == "DENY /b" && inForce("guard@last-good") == "DENY /a" })
	a.put(policies, "a", "guard", denies(1))
	until(t, "the last good one alone", func() bool { return inForce("guard") == "DENY /a" && inForce("guard@last-good") == "none" })
	a.put(policies, "a", "guard", denies("/c", 1))
	until(t, "both denied again", func() bool { return inForce("guard@last-good") == "DENY /a" })
	a.drop(policies, "a", "guard")
	until(t, "both gone", func() bool { return inForce("guard") == "none" && inForce("guard@last-good") == "none" })

	// One that allows everything and becomes one that denies is in force with what can be read of that.
	opens := object{"metadata": object{"uid": "4"}, "spec": object{"rules": []any{object{}}}}
	a.put(policies, "a", "open", opens)
	until(t, "allowed", func() bool { return inForce("open") == "ALLOW all" })
	closes := denies("/a", 1)
	closes["metadata"] = object{"uid": "4"}
	a.put(policies, "a", "open", closes)
	until(t, "denied", func() bool { return inForce("open") == "DENY /a" && inForce("open@last-good") == "ALLOW all" })
	closes = denies(1)
	closes["metadata"] = object{"uid": "4"}
	a.put(policies, "a", "open", closes)
	until(t, "all denied", func() bool { return inForce("open") == "DENY all" && inForce("open@last-good") == "ALLOW all" })
	a.put(policies, "a", "open", opens)
	until(t, "allowed again", func() bool { return inForce("open") == "ALLOW all" && inForce("open@last-good") == "none" })

	a.drop(policies, "a", "bad")
	until(t, "gone", func() bool {
		return r.get(kinds.AuthorizationPolicy, "a", "bad") == nil && !strings.Contains(fmt.Sprint(r.Findings()), "a/bad")
	})
}

func TestOtherObjectsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	a := newAPIServer(t, kinds.Sidecar)
	const sidecars = "sidecars.networking.istio.io"
	a.put(sidecars, "a", "s", object{"spec": object{"egress": 1, "outboundTrafficPolicy": object{"mode": "ALLOW_ANY"}}})
	a.put(sidecars, "a", "newer", object{"spec": object{"newerField": 1, "egress": []any{object{"hosts": []any{"./*"}}}}})
	r := read(t, a, Options{Kinds: []*kinds.Kind{kinds.Sidecar}})
	r.synced()
	if hostOf(r.get(kinds.Sidecar, "a", "s")) != "~/*" || hostOf(r.get(kinds.Sidecar, "a", "newer")) != "./*" {
		t.Error("left out what is good, or not what is bad")
	}
	if d := r.finding("UnknownField"); d.Severity != diag.Warning || d.Object != "Sidecar a/newer" || d.Field != "spec.newerField" {
		t.Errorf("%+v", d)
	}
	r.finding("Unusable")
	a.put(sidecars, "a", "s", sidecar("./*"))
	until(t, "mended", func() bool { return hostOf(r.get(kinds.Sidecar, "a", "s")) == "./*" })
	a.put(sidecars, "a", "s", object{"spec": object{"egress": 1}})
	r.finding("Unusable")
	if hostOf(r.get(kinds.Sidecar, "a", "s")) != "./*" {
		t.Error("the last good version is gone")
	}
	restricts := sidecar("./*")
	restricts["spec"].(object)["outboundTrafficPolicy"] = object{"mode": "REGISTRY_ONLY"}
	restricts["spec"].(object)["inboundConnectionPool"] = 1
	a.put(sidecars, "a", "s", restricts)
	until(t, "a version that restricts more", func() bool {
		return r.get(
			kinds.Sidecar, "a", "s",
		).Spec.(*networkingv1.Sidecar).OutboundTrafficPolicy.GetMode() == networkingv1alpha3.OutboundTrafficPolicy_REGISTRY_ONLY
	})
}
