package authz_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	securityv1 "istio.io/api/security/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// from and when return rules in YAML, of a source's field and of a condition.
func from(field, value string) string {
	return fmt.Sprintf("{from: [{source: {%s: [%q]}}]}", field, value)
}

func when(key, list, value string) string {
	return fmt.Sprintf("{when: [{key: %s, %s: [%q]}]}", key, list, value)
}

// matching puts a rule into a policy of an action, and returns the names of the callers that the rule matches, joined
// by spaces.
func matching(t *testing.T, m *mesh.Config, action securityv1.AuthorizationPolicy_Action, rule string, callers map[string]*request) string {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("rules: [" + rule + "]"))
	must.Succeed(t, err)
	spec := &securityv1.AuthorizationPolicy{}
	must.Succeed(t, protojson.Unmarshal(text, spec))
	spec.Action = action
	policy := &kinds.Object{Key: kinds.Key{Kind: kinds.AuthorizationPolicy, Namespace: "a", Name: "p"}, Spec: spec}
	filters := filtersOf(m, []*kinds.Object{policy}, true)
	e := &evaluator{regexes: map[string]*regexp.Regexp{}}
	return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(callers)), func(name string) bool {
		return e.decide(filters, callers[name]).allowed != (action == securityv1.AuthorizationPolicy_ALLOW)
	}), " ")
}

// peers returns callers with identities domain/ns/namespace/sa/account, and one without an identity.
func peers(ids ...string) map[string]*request {
	all := map[string]*request{"-": {http: true}}
	for _, id := range ids {
		parts := strings.Split(id, "/")
		all[id] = &request{http: true, domain: parts[0], ns: parts[2], name: parts[4]}
	}
	return all
}

// TestTrustDomains: a trust domain of the mesh in a policy is each of them, and so is the exact name cluster.local in a
// whole ID, whatever the trust domains are.
func TestTrustDomains(t *testing.T) {
	const (
		other   = "{trustDomain: td1, trustDomainAliases: [td2]}"
		usual   = "{trustDomain: cluster.local, trustDomainAliases: [td2]}"
		moved   = "{trustDomain: td1, trustDomainAliases: [cluster.local]}"
		foreign = "cluster.local/ns/bar/sa/sleep"
		both    = "td1/ns/bar/sa/sleep td2/ns/bar/sa/sleep"
		inUsual = "cluster.local/ns/bar/sa/sleep td2/ns/bar/sa/sleep"
		inMoved = "cluster.local/ns/bar/sa/sleep td1/ns/bar/sa/sleep"
	)
	callers := peers(foreign, "td1/ns/bar/sa/sleep", "td2/ns/bar/sa/sleep", "td1/ns/foo/sa/sleep")
	for _, c := range []struct{ mesh, field, value, allow, deny string }{
		{other, "principals", foreign, both, foreign + " " + both},
		{other, "principals", "td2/ns/bar/sa/sleep", both, both},
		{other, "principals", "cluster.local/ns/bar/sa/*", both, foreign + " " + both},
		{other, "principals", "td*/ns/bar/sa/sleep", both, both},
		{other, "principals", "*d2/ns/bar/sa/sleep", both, both},
		{other, "principals", "cluster.local/ns/bar/*", foreign, foreign},
		{other, "principals", "cluster.local/*", foreign, foreign},
		{other, "principals", "*local/ns/bar/sa/sleep", foreign, foreign},
		{other, "principals", "cluster.*/ns/bar/sa/sleep", "", ""},
		{other, "principals", "CLUSTER.LOCAL/ns/bar/sa/sleep", "", ""},
		{usual, "principals", foreign, inUsual, inUsual},
		{usual, "principals", "cluster.*/ns/bar/sa/sleep", inUsual, inUsual},
		{usual, "principals", "*local/ns/bar/sa/sleep", inUsual, inUsual},
		{moved, "principals", foreign, inMoved, inMoved},
		{moved, "principals", "cluster.local/ns/bar/*", inMoved, inMoved},
		{other, "trustDomains", "td2", "td1/ns/bar/sa/sleep td1/ns/foo/sa/sleep td2/ns/bar/sa/sleep",
			"td1/ns/bar/sa/sleep td1/ns/foo/sa/sleep td2/ns/bar/sa/sleep"},
		{other, "trustDomains", "cluster.local", foreign, foreign},
		{other, "trustDomains", "*2", "td2/ns/bar/sa/sleep", "td2/ns/bar/sa/sleep"},
	} {
		m, found := mesh.Parse("mesh", []byte(c.mesh))
		if m == nil {
			t.Fatal(found)
		}
		wantMatches(t, m, c.field, "source."+strings.TrimSuffix(c.field, "s"), c.value, callers, c.allow, c.deny)
	}
}

// wantMatches wants the callers that a value of a source's field and of a condition matches, where it lets in and where
// it keeps out. The value in the list that begins with "not" matches all other callers.
func wantMatches(t *testing.T, m *mesh.Config, field, key, value string, callers map[string]*request, allow, deny string) {
	t.Helper()
	others := func(matched string) string {
		return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(callers)), func(name string) bool {
			return slices.Contains(strings.Fields(matched), name)
		}), " ")
	}
	notField := "not" + strings.ToUpper(field[:1]) + field[1:]
	for _, c := range []struct {
		action securityv1.AuthorizationPolicy_Action
		rules  []string
		want   string
	}{
		{securityv1.AuthorizationPolicy_ALLOW, []string{from(field, value), when(key, "values", value)}, allow},
		{securityv1.AuthorizationPolicy_DENY, []string{from(field, value), when(key, "values", value)}, deny},
		{securityv1.AuthorizationPolicy_ALLOW, []string{from(notField, value), when(key, "notValues", value)}, others(deny)},
		{securityv1.AuthorizationPolicy_DENY, []string{from(notField, value), when(key, "notValues", value)}, others(allow)},
	} {
		for _, rule := range c.rules {
			if got := matching(t, m, c.action, rule, callers); got != c.want {
				t.Errorf("trust domains %v: %s %s matches %q, want %q", m.TrustDomains(), c.action, rule, got, c.want)
			}
		}
	}
}

// TestStars: where a namespace or a trust domain keeps out, each star is a wildcard that ends at a slash. A principal
// that begins with a star has only wildcards, too. Where they let in, a star is one only at the beginning or the end.
func TestStars(t *testing.T) {
	callers := peers("eu.corp/ns/team-x-dev/sa/a", "us.corp/ns/team-dev/sa/a", "eu.corp/ns/x/sa/team-x-dev")
	for _, c := range []struct{ field, value, allow, deny string }{
		{"namespaces", "team-*-dev", "", "eu.corp/ns/team-x-dev/sa/a"},
		{"namespaces", "*eam-*", "", "eu.corp/ns/team-x-dev/sa/a us.corp/ns/team-dev/sa/a"},
		{"namespaces", "team-*", "eu.corp/ns/team-x-dev/sa/a us.corp/ns/team-dev/sa/a", "eu.corp/ns/team-x-dev/sa/a us.corp/ns/team-dev/sa/a"},
		{"namespaces", "**", "", "eu.corp/ns/team-x-dev/sa/a eu.corp/ns/x/sa/team-x-dev us.corp/ns/team-dev/sa/a"},
		{"principals", "*/sa/te*-dev", "", "eu.corp/ns/x/sa/team-x-dev"},
		{"principals", "*/ns/team-*", "", "eu.corp/ns/team-x-dev/sa/a us.corp/ns/team-dev/sa/a"},
		{"principals", "eu.corp/ns/*/sa/a", "", ""},
		{"trustDomains", "e*.corp", "", "eu.corp/ns/team-x-dev/sa/a eu.corp/ns/x/sa/team-x-dev"},
		{"trustDomains", "*u*", "", "eu.corp/ns/team-x-dev/sa/a eu.corp/ns/x/sa/team-x-dev us.corp/ns/team-dev/sa/a"},
	} {
		wantMatches(t, mesh.Default(), c.field, "source."+strings.TrimSuffix(c.field, "s"), c.value, callers, c.allow, c.deny)
	}
}

// TestRequestPrincipals: a value without a subject matches no token, and Envoy accepts what it becomes. Where a value
// lets in, one star at the beginning or the end is a wildcard. Where it keeps out, each star is.
func TestRequestPrincipals(t *testing.T) {
	token := func(iss, sub string) *request {
		return &request{http: true, claims: map[string]any{"iss": iss, "sub": sub}}
	}
	callers := map[string]*request{
		"-": {http: true}, "mail": token("me@x", "a"), "star": token("me@x", "*"), "url": token("https://a.com", "a"),
		"path": token("https://a.com/b", "c/d"),
	}
	for _, c := range []struct{ value, allow, deny string }{
		{"me@x", "", ""},
		{"https://a.com", "", ""},
		{"https://", "", ""},
		{"://", "", ""},
		{"/", "", ""},
		{"", "", ""},
		{"https://a.com/a", "url", "url"},
		{"https://a.com/b/c/d", "", "path"},
		{"https://a.com/*", "url", "path url"},
		{"https://*", "", "path url"},
		{"https*", "path url", "path url"},
		{"me@x/*", "mail star", "mail star"},
		{"me@x*", "mail star", "mail star"},
		{"*/a", "mail url", "mail url"},
		{"*d", "path", "path"},
		{"*", "mail path star url", "mail path star url"},
		{"*/*", "star", "mail path star url"},
		{"**", "star", "mail path star url"},
		{"*a.com/*", "", "path url"},
		{"me*x/a", "", "mail"},
	} {
		wantMatches(t, mesh.Default(), "requestPrincipals", "request.auth.principal", c.value, callers, c.allow, c.deny)
	}
	if got := matching(t, mesh.Default(), securityv1.AuthorizationPolicy_DENY, from("requestPrincipals", strings.Repeat("*x", 1000)),
		callers); got != "mail path star url" {
		t.Errorf("a value that can be split at too many places denies %q", got)
	}
}
