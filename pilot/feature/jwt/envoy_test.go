package jwt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	securityv1 "istio.io/api/security/v1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/galley/validation"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/jwt"
)

// TestEnvoysTakeWhatIsAccepted draws rules with texts that mean something elsewhere. A real Envoy takes the filters of
// all those that validation accepts: one that it could not read would keep every other listener change from it.
func TestEnvoysTakeWhatIsAccepted(t *testing.T) {
	seed, _ := histories.Seed(t)
	draw := rapid.Custom(drawUgly)
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix:     "http",
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{}},
	}
	for i := 0; len(manager.HttpFilters) < 300; i++ {
		meta := validation.Metadata{Namespace: "a", Name: "ugly"}
		doc := validation.Message(limits.Default(), kinds.RequestAuthentication,
			meta, draw.Example(int(seed)+i)) //nolint:gosec // a seed may be any number
		if doc.Object != nil {
			for _, m := range []jwt.Mode{jwt.Server, jwt.Proxies} {
				c := feature.Chain{Direction: feature.Inbound, HTTP: true, Selection: feature.Of(doc.Object)}
				manager.HttpFilters = append(manager.HttpFilters, jwt.New(m).Hooks.HTTPFilters(c)...)
			}
		} else if i > 100*len(manager.HttpFilters)+1000 {
			t.Fatalf("nothing is accepted: %v", doc.Findings)
		}
	}
	manager.HttpFilters = append(manager.HttpFilters, envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(&routerv3.Router{})))
	text, err := protojson.Marshal(
		&bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{Listeners: []*listenerv3.Listener{{
			Name: "all",
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1",
				PortSpecifier: &corev3.SocketAddress_PortValue{}}}},
			FilterChains: []*listenerv3.FilterChain{{
				Filters: []*listenerv3.Filter{envoy.NetworkFilter("envoy.filters.network.http_connection_manager", envoy.Any(manager))},
			}},
		}}}})
	must.Succeed(t, err)
	config := filepath.Join(t.TempDir(), "envoy.json")
	must.Succeed(t, os.WriteFile(config, text, 0o600))
	program := os.Getenv("ENVOY")
	if program == "" {
		program = "../../../.tools/envoy"
	}
	if said, err := exec.CommandContext(t.Context(), program, "-c", config, "--mode", "validate", "-l", "error").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
}

// drawUgly returns a policy with one rule. One field of the rule has odd texts.
func drawUgly(t *rapid.T) *securityv1.RequestAuthentication {
	part := rapid.SampledFrom([]string{
		"a", "a", "b", "-", "_", "*", "{*}", "/", "{", "}", "[", "]", "(", ")", ".", "?", "#", "%", "%2F", "\\", "^", "$", "|", "+", "\n",
		"\r", "\t", " ", "\x00", "\x7f", "ä", ":", ";", ",", "=", "\"", "'",
	})
	one := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(part, 0, 4).Draw(t, "parts"), "") })
	list := func(label string) []string { return rapid.SliceOfN(one, 1, 2).Draw(t, label) }
	presence := rapid.SampledFrom([]securityv1.JWTRule_JWTRequirement{securityv1.JWTRule_OPTIONAL, securityv1.JWTRule_REQUIRED})
	r := &securityv1.JWTRule{Issuer: "https://issuer.example", Jwks: jwks.AcceptsNone, Presence: presence.Draw(t, "presence")}
	switch rapid.IntRange(0, 10).Draw(t, "where") {
	case 0:
		r.Issuer = one.Draw(t, "issuer")
	case 1:
		r.Audiences = list("audiences")
	case 2:
		r.FromHeaders = []*securityv1.JWTHeader{{Name: one.Draw(t, "name"), Prefix: one.Draw(t, "prefix")}}
	case 3:
		r.FromParams = list("params")
	case 4:
		r.FromCookies = list("cookies")
	case 5:
		r.OutputPayloadToHeader = one.Draw(t, "header")
	case 6:
		r.OutputClaimToHeaders = []*securityv1.ClaimToHeader{{Header: one.Draw(t, "header"), Claim: "sub"},
			{Header: "x-claim", Claim: one.Draw(t, "claim")}}
	case 7:
		r.SpaceDelimitedClaims = list("claims")
	case 8:
		r.Jwks = rapid.SampledFrom([]string{`{"keys":[]}`, `{"keys":[{}]}`, `{}`, `[]`, `{"Keys":[{"kty":"oct","k":"AA"}]}`,
			`{"keys":[{"kty":"oct","k":"AA"}]}`,
			`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`}).Draw(t, "jwks")
	case 9:
		r.Jwks, r.JwksUri = "", "https://"+one.Draw(t,
			"host")+rapid.SampledFrom([]string{"", "a/", "a", "a:0/", "a:99999/", "[::1]:80?"}).Draw(t, "end")+one.Draw(t, "path")
	default:
		r.Jwks, r.JwksUri, r.Timeout = "", "https://issuer.example/keys", durationpb.New(time.Duration(rapid.Int64().Draw(t, "timeout")))
	}
	return &securityv1.RequestAuthentication{JwtRules: []*securityv1.JWTRule{r}}
}
