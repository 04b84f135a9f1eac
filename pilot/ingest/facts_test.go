package ingest

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
)

var textKind = &kinds.Kind{Name: "Text"}

// oracle is a provider that a test writes.
type oracle struct {
	wanted  []string
	waits   int
	first   []kinds.Change
	failing map[string]facts.Failure
}

func (p *oracle) Want(needs []facts.Need) {
	p.wanted = nil
	for _, n := range needs {
		p.wanted = append(p.wanted, n.Name)
	}
}

func (p *oracle) Wait(time.Duration) []kinds.Change { p.waits++; return p.first }

func (p *oracle) Failing() map[string]facts.Failure { return p.failing }

// wanting is a Catalog in which each RequestAuthentication needs a fact.
type wanting struct{ supported }

func (wanting) Wants(o *kinds.Object) (list []facts.Want) {
	if o.Kind == kinds.RequestAuthentication {
		uri := o.Spec.(*securityv1.RequestAuthentication).JwtRules[0].JwksUri
		list = append(list, facts.Want{Key: kinds.Key{Kind: textKind, Name: uri}, Field: "spec.jwtRules[0].jwksUri", Without: "no token passes"})
	}
	return list
}

// TestFactsFollowObjects: a provider is asked for what objects that count need, its answers are in Snapshots, those
// that come soon in the first, and what cannot be had is a finding that says what applies.
func TestFactsFollowObjects(t *testing.T) {
	answer := func(name, value string) kinds.Change { return facts.Change(textKind, name, &value) }
	p := &oracle{first: []kinds.Change{answer("x", "1")}}
	w := New(Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local"}, Parts{
		Facts: map[*kinds.Kind]facts.Provider{textKind: p}, Catalog: wanting{supported{catalog.Features()}},
	})
	policy := func(uri string, labels map[string]string) kinds.Change {
		k := kinds.Key{Kind: kinds.RequestAuthentication, Namespace: "a", Name: "p"}
		spec := &securityv1.RequestAuthentication{JwtRules: []*securityv1.JWTRule{{JwksUri: uri}}}
		return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Spec: spec, Labels: labels, Position: "p.yaml:3:1"}}
	}
	commit := func(wants []string, x string, changes ...kinds.Change) {
		t.Helper()
		s := w.Commit(changes, time.Time{})
		if value, _ := facts.Value[string](s.Fact(kinds.Key{Kind: textKind, Name: "x"})); value != x {
			t.Errorf("x is %q, want %q", value, x)
		}
		if !slices.Equal(p.wanted, wants) {
			t.Errorf("%v are wanted, not %v", p.wanted, wants)
		}
	}
	finding := func(want string) {
		t.Helper()
		list := w.Findings()
		if len(list) != 1 || list[0].Object != "RequestAuthentication a/p" || list[0].Field != "spec.jwtRules[0].jwksUri" ||
			list[0].File != "p.yaml" || !strings.Contains(list[0].Message, want) {
			t.Errorf("%v, want one finding: %s", list, want)
		}
	}
	commit([]string{"x"}, "1", policy("x", nil))
	if p.waits != 1 {
		t.Errorf("waited %d times", p.waits)
	}
	commit([]string{"x"}, "2", answer("x", "2"))
	if n := len(w.AllObjects()); n != 1 {
		t.Errorf("%d objects: a fact is none", n)
	}
	p.failing = map[string]facts.Failure{"x": {Why: "no route", Since: time.Unix(0, 0)}, "z": {Why: "nobody asks"}}
	finding("since 1970-01-01T00:00:00Z: no route; the last answer stays in force")
	commit([]string{"x"}, "", facts.Change[string](textKind, "x", nil))
	finding("no route; no token passes")
	commit(nil, "", policy("x", map[string]string{names.LabelRevision: "other"}))
	commit([]string{"y"}, "", policy("y", nil))
	if p.waits != 1 || len(w.Findings()) != 0 {
		t.Errorf("waited %d times, findings %v", p.waits, w.Findings())
	}
}

// TestKeysThatNobodyFetches: where nobody fetches keys, as in a configuration that is read once, a rule that depends on
// them is a finding.
func TestKeysThatNobodyFetches(t *testing.T) {
	w := newTestWorld(t, Options{})
	policy := func(rule *securityv1.JWTRule) *kinds.Object {
		k := kinds.Key{Kind: kinds.RequestAuthentication, Namespace: "a", Name: "p"}
		return &kinds.Object{Key: k, Position: "p.yaml:3:1", Spec: &securityv1.RequestAuthentication{JwtRules: []*securityv1.JWTRule{rule}}}
	}
	for _, c := range []struct {
		rule *securityv1.JWTRule
		want string
	}{
		{&securityv1.JWTRule{Issuer: "https://a", JwksUri: "https://a/keys"}, "spec.jwtRules[0].jwksUri p.yaml"},
		{&securityv1.JWTRule{Issuer: "https://a"}, "spec.jwtRules[0].issuer p.yaml"},
		{&securityv1.JWTRule{Issuer: "a", Jwks: `{"keys": []}`}, ""},
	} {
		w.apply(policy(c.rule))
		got := ""
		for _, d := range w.Findings() {
			if d.Code == "KeysNotFetched" {
				got += d.Field + " " + d.File
			}
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.rule, got, c.want)
		}
	}
}
