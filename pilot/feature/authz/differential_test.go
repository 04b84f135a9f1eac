package authz_test

import (
	"math/rand/v2"
	"regexp"
	"testing"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/authz"
	"github.com/istiod-lite/istiod-lite/registry"
)

// How many sets of policies each check draws, and how many requests are judged by each: with the usual hundred checks
// these are 100,000 pairs, and a million in a round of `make soak`.
const (
	sets     = 5
	requests = 200
)

// inEachMesh runs a test in meshes of several trust domains: by the default name, and by others alone.
func inEachMesh(t *testing.T, test func(*testing.T, *mesh.Config)) {
	for _, config := range []string{
		"{trustDomain: cluster.local, trustDomainAliases: [old.example]}",
		"{trustDomain: td1, trustDomainAliases: [td2]}",
	} {
		m, found := mesh.Parse("mesh", []byte(config))
		if len(found) > 0 {
			t.Fatal(found)
		}
		t.Run(m.GetTrustDomain(), func(t *testing.T) { test(t, m) })
	}
}

// TestDecisions draws policies and requests: what the filters decide is what the documentation of AuthorizationPolicy
// says. Envoy accepts the filters.
func TestDecisions(t *testing.T) {
	inEachMesh(t, func(t *testing.T, m *mesh.Config) {
		o, e := oracle{domains: m.TrustDomains()}, &evaluator{regexes: map[string]*regexp.Regexp{}}
		outcomes := map[verdict]int{}
		rapid.Check(t, func(t *rapid.T) {
			d := dice{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed of requests"), 0))} //nolint:gosec // nothing is secret
			for range sets {
				policies := drawPolicies(t)
				filters := map[bool][]stage{}
				for _, http := range []bool{true, false} {
					filters[http] = filtersOf(m, policies, http)
				}
				for range requests {
					r := d.request()
					want, got := o.decide(policies, r), e.decide(filters[r.http], r)
					if want != got {
						t.Fatalf("%+v\nis %+v, want %+v, by\n%s", *r, got, want, show(policies))
					}
					outcomes[got]++
				}
			}
		})
		t.Logf("%v", outcomes)
		for _, v := range []verdict{{true, true}, {true, false}, {false, true}, {false, false}} {
			if outcomes[v] < requests {
				t.Errorf("only %d requests are %+v: %v", outcomes[v], v, outcomes)
			}
		}
	})
}

// hooked is a feature, and the chain that its filters are for.
type hooked struct {
	*feature.Feature
	chain feature.Chain
}

// hooksOf returns what makes the filters of a chain of a workload with some policies.
func hooksOf(m *mesh.Config, policies []*kinds.Object, http bool) []hooked {
	var custom, others []*kinds.Object
	for _, p := range policies {
		if p.Spec.(*securityv1.AuthorizationPolicy).Action == securityv1.AuthorizationPolicy_CUSTOM {
			custom = append(custom, p)
		} else {
			others = append(others, p)
		}
	}
	c := feature.Chain{Proxy: feature.Proxy{Mesh: m}, Direction: feature.Inbound, HTTP: http, Selection: feature.Of(custom...)}
	c.Selection.Providers = frozen.ListOf(provider)
	first := hooked{authz.NewCustom(), c}
	c.Selection = feature.Of(others...)
	return []hooked{first, {authz.New(), c}}
}

// filtersOf returns the filters of a chain of a workload with some policies.
func filtersOf(m *mesh.Config, policies []*kinds.Object, http bool) []stage {
	var list []stage
	for _, f := range hooksOf(m, policies, http) {
		if http {
			list = append(list, stages(f.Hooks.HTTPFilters(f.chain), nil)...)
		} else {
			list = append(list, stages(nil, f.Hooks.NetworkFilters(f.chain))...)
		}
	}
	return list
}

// provider is the authorizer of policies of action CUSTOM.
var provider = feature.ExtensionProvider{
	Name: "by-grpc",
	Config: &meshv1alpha1.MeshConfig_ExtensionProvider{Name: "by-grpc", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{
		EnvoyExtAuthzGrpc: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{Service: "authorizer", Port: 9000},
	}},
	Service: &registry.Service{Host: "authorizer", Ports: []registry.Port{{Number: 9000}}},
}
