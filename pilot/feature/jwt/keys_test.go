package jwt_test

import (
	"strings"
	"testing"
	"time"

	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/jwt"
)

// mesh is a feature.Reader of one policy and of facts.
type mesh struct {
	feature.Reader
	policy *kinds.Object
	facts  map[kinds.Key]*kinds.Object
}

func (mesh) RootNamespace() string { return "istio-system" }

func (m mesh) Fact(k kinds.Key) *kinds.Object { return m.facts[k] }

func (m mesh) Objects(kind *kinds.Kind, namespace string) []*kinds.Object {
	if kind != m.policy.Kind || namespace != m.policy.Namespace {
		return nil
	}
	return []*kinds.Object{m.policy}
}

// TestKeys: the keys of a rule are those that were fetched for it, or that proxies fetch, or else those that nobody can
// sign for.
func TestKeys(t *testing.T) {
	const uri, inMesh = "https://a.example.com:8443/keys", "http://keys.a.svc.cluster.local/x"
	rules := []*securityv1.JWTRule{
		{Issuer: "a", JwksUri: uri, Timeout: durationpb.New(time.Second)},
		{Issuer: "b", JwksUri: inMesh},
		{Issuer: "https://c"},
		{Issuer: "https://d"},
		{Issuer: "me@example.com"},
	}
	fetched := func(text string) *kinds.Object { return &kinds.Object{Spec: &text} }
	yes := true
	all := map[kinds.Key]*kinds.Object{
		{Kind: kinds.JWKS, Name: "1s jwks " + uri}:        fetched("keys of a"),
		{Kind: kinds.JWKS, Name: "5s jwks " + inMesh}:     fetched("keys of b"),
		{Kind: kinds.JWKS, Name: "5s issuer https://c"}:   fetched("keys of c"),
		facts.ServicePort("keys.a.svc.cluster.local", 80): {Spec: &yes},
	}
	for k, f := range all {
		f.Key = k
	}
	for _, c := range []struct {
		mode   jwt.Mode
		wanted int
		keys   string // of the rules; a cluster is where proxies fetch them
	}{
		{jwt.Server, 4, "keys of a, keys of b, keys of c, nobody, nobody"},
		{jwt.Hybrid, 6, "keys of a, outbound|80||keys.a.svc.cluster.local, keys of c, nobody, nobody"},
		{jwt.Proxies, 4, "outbound|8443||a.example.com, outbound|80||keys.a.svc.cluster.local, keys of c, nobody, nobody"},
	} {
		f := jwt.New(c.mode)
		policy := &kinds.Object{Key: kinds.Key{Kind: kinds.RequestAuthentication, Namespace: "a", Name: "p"},
			Spec: &securityv1.RequestAuthentication{JwtRules: rules}}
		wants := f.Facts(policy)
		if len(wants) != c.wanted {
			t.Errorf("%q: %v are wanted, not %d", c.mode, wants, c.wanted)
		}
		selected := feature.Select([]*feature.Feature{f}, mesh{policy: policy, facts: all}, "a",
			feature.Workload{Namespace: "a"})(feature.InboundPart).Of(f)
		filters := f.HTTPFilters(feature.Chain{Direction: feature.Inbound, HTTP: true, Selection: selected})
		filter := &jwtv3.JwtAuthentication{}
		if len(filters) != 1 {
			t.Fatalf("%q: %d filters", c.mode, len(filters))
		}
		must.Succeed(t, filters[0].GetTypedConfig().UnmarshalTo(filter))
		if err := filter.ValidateAll(); err != nil {
			t.Error(err)
		}
		byIssuer := map[string]string{}
		for _, p := range filter.Providers {
			keys := p.GetLocalJwks().GetInlineString()
			if r := p.GetRemoteJwks(); r != nil {
				keys = r.HttpUri.GetCluster()
			}
			if byIssuer[p.Issuer] = keys; keys == jwks.AcceptsNone || keys == jwks.NotFetched {
				byIssuer[p.Issuer] = "nobody"
			}
		}
		var got []string
		for _, r := range rules {
			got = append(got, byIssuer[r.Issuer])
		}
		if s := strings.Join(got, ", "); s != c.keys {
			t.Errorf("%q: keys %s, want %s", c.mode, s, c.keys)
		}
	}
}

// TestURIsThatProxiesRefuse: a jwksUri that proxies do not take is a finding where only they fetch keys.
func TestURIsThatProxiesRefuse(t *testing.T) {
	for uri, bad := range map[string]bool{"https://a.example.com/keys": false, "https://a.example.com/keys#x": true,
		"https://a_b/keys": true} {
		policy := &kinds.Object{Key: kinds.Key{Kind: kinds.RequestAuthentication, Namespace: "a", Name: "p"},
			Spec: &securityv1.RequestAuthentication{
				JwtRules: []*securityv1.JWTRule{{Issuer: "a", JwksUri: uri}},
			}}
		for _, m := range []jwt.Mode{jwt.Server, jwt.Hybrid, jwt.Proxies} {
			list := jwt.New(m).Unsupported(policy)
			if want := bad && m == jwt.Proxies; (len(list) == 1 && list[0].Field == "spec.jwtRules[0].jwksUri") != want || !want && len(list) > 0 {
				t.Errorf("%q, %s: %v", m, uri, list)
			}
		}
	}
}
