package traffic_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

func rules(t *testing.T, specs ...string) traffic.Rules {
	t.Helper()
	var list []*kinds.Object
	for _, s := range specs {
		spec := &networkingv1.DestinationRule{}
		must.Succeed(t, protojson.Unmarshal([]byte(s), spec))
		list = append(list, &kinds.Object{Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: "a", Name: s[:min(len(s), 8)]}, Spec: spec})
	}
	return frozen.ListOf(list...)
}

// TestBackendTLS: TLS settings that were made of BackendTLSPolicies take the place of others, and nothing else of a
// policy does.
func TestBackendTLS(t *testing.T) {
	user := `{"trafficPolicy":{"loadBalancer":{"simple":"RANDOM"},"tls":{"mode":"DISABLE"},
		"portLevelSettings":[{"port":{"number":90},"loadBalancer":{"simple":"ROUND_ROBIN"}}]},
		"subsets":[{"name":"own","trafficPolicy":{"tls":{"mode":"MUTUAL"}}}]}`
	for _, c := range []struct {
		name, policies string
		port           uint32
		subset         string
		lb, tls        string
	}{
		{"all ports", `{"trafficPolicy":{"tls":{"mode":"SIMPLE"}}}`, 80, "", "RANDOM", "SIMPLE"},
		{"a port with settings of its own", `{"trafficPolicy":{"tls":{"mode":"SIMPLE"}}}`, 90, "", "ROUND_ROBIN", "SIMPLE"},
		{"a subset", `{"trafficPolicy":{"tls":{"mode":"SIMPLE"}}}`, 80, "own", "RANDOM", "SIMPLE"},
		{"one port", `{"trafficPolicy":{"portLevelSettings":[{"port":{"number":80},"tls":{"mode":"SIMPLE"}}]}}`, 80, "", "RANDOM", "SIMPLE"},
		{"another port", `{"trafficPolicy":{"portLevelSettings":[{"port":{"number":81},"tls":{"mode":"SIMPLE"}}]}}`, 80, "", "RANDOM", "DISABLE"},
	} {
		for _, order := range [][]string{{user, c.policies}, {c.policies, user}} {
			list := slices.Collect(rules(t, order...).All)
			for i := range list {
				if order[i] == c.policies {
					list[i].Extra = &kinds.RuleExtra{}
				}
			}
			rule, _ := traffic.Merge(frozen.ListOf(list...)).Rule(c.subset)
			p := rule.Policy(c.port)
			if lb, tls := p.LoadBalancer.GetSimple().String(), p.TLS.GetMode().String(); lb != c.lb || tls != c.tls {
				t.Errorf("%s: %s and %s, want %s and %s", c.name, lb, tls, c.lb, c.tls)
			}
			if !rule.HasCredentials() || rule.Object.Extra == nil {
				t.Errorf("%s: the cluster is not of the policy", c.name)
			}
		}
	}
}

// TestRetryBudget: a retry budget that was made of XBackendTrafficPolicies applies to all ports and subsets, unless a
// rule of a user has one. It allows no credentials.
func TestRetryBudget(t *testing.T) {
	const budget, secured = `"retryBudget":{"percent":30}`, `"tls":{"mode":"SIMPLE"},`
	const port = `"portLevelSettings":[{"port":{"number":90},"tls":{"mode":"SIMPLE"}}],`
	for _, c := range []struct {
		name, user, policies string
		port                 uint32
		subset               string
		percent              float64 // 0 for none
		credentials          bool
	}{
		{"alone", "", budget, 80, "", 30, false},
		{"beside other settings", `"loadBalancer":{"simple":"RANDOM"}`, budget, 80, "", 30, false},
		{"a rule's budget", `"retryBudget":{"percent":5}`, budget, 80, "", 5, false},
		{"settings of a port", `"portLevelSettings":[{"port":{"number":90},"loadBalancer":{"simple":"RANDOM"}}]`, budget, 90, "", 30, false},
		{"settings of a port that lose a rule's budget", `"retryBudget":{"percent":5},"portLevelSettings":[{"port":{"number":90}}]`,
			budget, 90, "", 0, false},
		{"a subset", `"loadBalancer":{"simple":"RANDOM"}`, budget, 80, "plain", 30, false},
		{"a subset's budget", `"loadBalancer":{"simple":"RANDOM"}`, budget, 80, "own", 7, false},
		{"with TLS", `"loadBalancer":{"simple":"RANDOM"}`, secured + budget, 80, "", 30, true},
		{"TLS of this port", `"loadBalancer":{"simple":"RANDOM"}`, port + budget, 90, "", 30, true},
	} {
		user := `{"trafficPolicy":{` + c.user + `},"subsets":[{"name":"plain"},{"name":"own","trafficPolicy":{"retryBudget":{"percent":7}}}]}`
		list := slices.Collect(rules(t, user, `{"trafficPolicy":{`+c.policies+`}}`).All)
		list[1].Extra = &kinds.RuleExtra{}
		rule, _ := traffic.Merge(frozen.ListOf(list...)).Rule(c.subset)
		if got := rule.Policy(c.port).RetryBudget.GetPercent().GetValue(); got != c.percent || rule.HasCredentials() != c.credentials {
			t.Errorf("%s: %v%%, credentials %v; want %v%%, %v", c.name, got, rule.HasCredentials(), c.percent, c.credentials)
		}
	}
}

// TestResolve shows which setting a policy comes from; each setting has another load balancer.
func TestResolve(t *testing.T) {
	const (
		layered = `{"trafficPolicy":{"loadBalancer":{"simple":"RANDOM"},"tls":{"mode":"DISABLE"},
		"portLevelSettings":[{"port":{"number":90},"loadBalancer":{"simple":"ROUND_ROBIN"}}]},
			"subsets":[{"name":"plain"},{"name":"own",
			  "trafficPolicy":{"loadBalancer":{"simple":"PASSTHROUGH"},"portLevelSettings":[{"port":{"number":90},"tls":{"mode":"SIMPLE"}}]}}]}`
		others = `{"subsets":[{"name":"own"},{"name":"more","labels":{"v":"2"}}]}`
		second = `{"trafficPolicy":{"loadBalancer":{"simple":"ROUND_ROBIN"}},"subsets":[{"name":"own","labels":{"v":"1"}},{"name":"last"}]}`
	)
	for _, c := range []struct {
		name   string
		rules  []string
		port   uint32
		subset string
		lb     string // empty: none
		tls    string
	}{
		{"none", nil, 80, "", "", ""},
		{"the rule's", []string{layered}, 80, "", "RANDOM", "DISABLE"},
		{"a port's replaces all four", []string{layered}, 90, "", "ROUND_ROBIN", ""},
		{"a subset without policy", []string{layered}, 80, "plain", "RANDOM", "DISABLE"},
		{"a subset's over the rule's", []string{layered}, 80, "own", "PASSTHROUGH", "DISABLE"},
		{"a subset's port replaces everything", []string{layered}, 90, "own", "", "SIMPLE"},
		{"a subset that does not exist", []string{layered}, 80, "other", "RANDOM", "DISABLE"},
		{"the first that says something", []string{others, second, layered}, 80, "", "ROUND_ROBIN", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rule, _ := traffic.Merge(rules(t, c.rules...)).Rule(c.subset)
			p := rule.Policy(c.port)
			lb, tls := "", ""
			if p.LoadBalancer != nil {
				lb = p.LoadBalancer.GetSimple().String()
			}
			if p.TLS != nil {
				tls = p.TLS.Mode.String()
			}
			if lb != c.lb || tls != c.tls {
				t.Errorf("load balancer %q, tls %q", lb, tls)
			}
		})
	}
	merged := traffic.Merge(rules(t, others, second))
	names := ""
	for _, s := range merged.Subsets {
		names += s.Name + " "
	}
	if names != "own more last " {
		t.Errorf("subsets %s", names)
	}
	if r, ok := merged.Rule("own"); !ok || len(r.Labels()) != 0 {
		t.Errorf("of two subsets with one name not the first: %v", r)
	}
	if !slices.Equal(merged.Repeated, []string{"own"}) {
		t.Errorf("repeated: %v", merged.Repeated)
	}
	first := merged.Limit(2)
	if _, ok := first.Rule("last"); ok || len(first.Subsets) != 2 {
		t.Errorf("of the first two subsets: %v", first.Subsets)
	}
	if _, ok := first.Rule("more"); !ok || merged.Limit(3) != merged || len(merged.Subsets) != 3 {
		t.Errorf("a subset that fits is lost, or the rules have changed: %v", merged.Subsets)
	}
	if r, ok := merged.Rule("none"); ok || len(r.Labels()) != 0 || traffic.ServiceRule(rules(t)) != (traffic.Rule{}) {
		t.Error("something comes of nothing")
	}
}
