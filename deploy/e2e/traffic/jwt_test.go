package traffic

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Environment of a control plane that may fetch from the test's own servers, and does so often.
var here = []string{"ALLOWED_CIDRS_IN_JWKS_URIS=127.0.0.1/32", "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL=1s"}

func listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

// jwtPolicy returns a RequestAuthentication for the pods of an app, with rules in flow style.
func jwtPolicy(app string, rules ...string) string {
	return fmt.Sprintf("---\napiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: %s, namespace: a}\nspec:\n"+
		"  selector: {matchLabels: {app: %s}}\n  jwtRules:\n  - %s\n",
		app, app, strings.Join(rules, "\n  - "))
}

// TestTokens sends tokens of all kinds, in all places, to a sidecar with two issuers: one with a URI of its keys, and
// one that publishes the URI itself. Proxies of the newest and of the oldest version decide the same.
func TestTokens(t *testing.T) {
	t.Run("newest", testTokens)
	t.Run("oldest", func(t *testing.T) {
		t.Setenv(suite.EnvoyVar, os.Getenv(suite.OldestEnvoyVar))
		testTokens(t)
	})
}

func testTokens(t *testing.T) {
	one, two, stranger := newJWTIssuer(t, "127.0.0.1:7001"), newJWTIssuer(t, "127.0.0.1:7002"), newJWTIssuer(t, "")
	t.Cleanup(one.serve(listen))
	t.Cleanup(two.serve(listen))
	m := startJWT(t, jwtPolicy("echo",
		`{issuer: one, jwksUri: "`+one.url()+
			`/keys", audiences: [echo, other], fromHeaders: [{name: Authorization, prefix: "Bearer "}, {name: x-token}], fromParams: [token], `+
			`fromCookies: [session],`+
			` outputPayloadToHeader: x-payload, outputClaimToHeaders: [{header: x-group, claim: group}, {header: x-id, claim: nested.id}], `+
			`forwardOriginalToken: true}`,
		`{issuer: "`+two.url()+`"}`,
	), here...)

	c := claims{"iss": "one", "sub": "me", "aud": "echo", "exp": soon(), "group": "beta", "nested": claims{"id": 7}}
	good := one.token(c)
	second := two.token(claims{"iss": two.url(), "sub": "you", "exp": soon()})
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
	m.eventually("a good token", sidecar, good, http.StatusOK)
	m.eventually("a good token of the second issuer", sidecar, second, http.StatusOK)

	for name, r := range map[string]struct {
		query   string
		headers map[string]string
		status  int
	}{
		"no token":                {status: 200},
		"other credentials":       {headers: map[string]string{"Authorization": "Basic eDp5"}, status: 200},
		"in the usual header":     {headers: bearer(good), status: 200},
		"in a header of its own":  {headers: map[string]string{"x-token": good}, status: 200},
		"in a parameter":          {query: "a=b&token=" + good, status: 200},
		"in a cookie":             {headers: map[string]string{"Cookie": "x=y; session=" + good}, status: 200},
		"of several audiences":    {headers: bearer(one.token(c.with(claims{"aud": []string{"x", "other"}}))), status: 200},
		"of the second issuer":    {headers: bearer(second), status: 200},
		"without an end":          {headers: bearer(one.token(c.with(claims{"exp": nil}))), status: 200},
		"expired":                 {headers: bearer(one.token(c.with(claims{"exp": time.Now().Add(-time.Hour).Unix()}))), status: 401},
		"not valid yet":           {headers: bearer(one.token(c.with(claims{"nbf": soon()}))), status: 401},
		"for another audience":    {headers: bearer(one.token(c.with(claims{"aud": "x"}))), status: 403},
		"for no audience":         {headers: bearer(one.token(c.with(claims{"aud": nil}))), status: 403},
		"of another issuer":       {headers: bearer(stranger.token(c.with(claims{"iss": "stranger"}))), status: 401},
		"of no issuer":            {headers: bearer(one.token(c.with(claims{"iss": nil}))), status: 401},
		"by another key":          {headers: bearer(stranger.token(c)), status: 401},
		"by the other issuer":     {headers: bearer(two.token(c)), status: 401},
		"by no key":               {headers: bearer(none), status: 401},
		"by the public key":       {headers: bearer(one.forged(c)), status: 401},
		"changed":                 {headers: bearer(parts[0] + "." + strings.Split(second, ".")[1] + "." + parts[2]), status: 401},
		"garbage":                 {headers: bearer(".bnVsbM."), status: 401},
		"expired, in a cookie":    {headers: map[string]string{"Cookie": "session=" + one.token(c.with(claims{"exp": 1}))}, status: 401},
		"expired, in a parameter": {query: "token=" + one.token(c.with(claims{"exp": 1})), status: 401},
	} {
		status, got, err := m.call(sidecar, r.query, r.headers)
		if err != nil || status != r.status {
			t.Errorf("%s: %d, want %d: %v", name, status, r.status, err)
		}
		if name == "in a header of its own" || name == "in a cookie" || name == "in a parameter" || name == "in the usual header" {
			payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(got.Header.Get("x-payload"), "="))
			if err != nil || !strings.Contains(string(payload), `"sub":"me"`) || got.Header.Get("x-group") != "beta" ||
				got.Header.Get("x-id") != "7" {
				t.Errorf("%s: the application has %v, %s", name, got, payload)
			}
		}
		if kept := got.Header.Get("Authorization") != ""; name == "in the usual header" && !kept || name == "of the second issuer" && kept {
			t.Errorf("%s: the token reaches the application: %v", name, kept)
		}
		if name == "no token" && (got.Header.Get("x-group") != "" || got.Header.Get("x-payload") != "") {
			t.Errorf("without a token the application has claims: %v", got)
		}
	}
	if status, got, err := m.call(sidecar, "", map[string]string{"x-group": "root", "x-payload": "e30"}); err != nil ||
		status != http.StatusOK || got.Header.Get("x-group") != "" {
		t.Errorf("a client's own header of claims: %d, %v, %v", status, got, err)
	}

	// A policy may require a token, an issuer and claims.
	const required = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: echo, namespace: a}
spec:
  selector: {matchLabels: {app: echo}}
  rules:
  - from: [{source: {requestPrincipals: [one/me]}}]
    when: [{key: "request.auth.claims[group]", values: [beta]}]
`
	m.write("required.yaml", required)
	m.eventually("a token that is asked for", sidecar, good, http.StatusOK)
	m.eventually("one of another issuer", sidecar, second, http.StatusForbidden)
	for i, x := range []struct {
		key, values string
		in, out     claims // an accepted token and a refused one
	}{
		{"request.auth.principal", "values: [one/me]", nil, claims{"sub": "x"}},
		{"request.auth.principal", "notValues: [one/me]", claims{"sub": "x"}, nil},
		{"request.auth.audiences", "values: [echo]", nil, claims{"aud": "other"}},
		{"request.auth.audiences", "values: [echo]", claims{"aud": []string{"other", "echo"}}, claims{"aud": []string{"other"}}},
		{"request.auth.presenter", `values: ["app-*"]`, claims{"azp": "app-1"}, nil},
		{"request.auth.claims[group]", "values: [beta]", claims{"group": []string{"a", "beta"}}, claims{"group": []string{"a"}}},
		{"request.auth.claims[group]", "notValues: [beta]", claims{"group": "a"}, claims{"group": []string{"a", "beta"}}},
		{"request.auth.claims[realm][roles]", `values: ["*admin"]`, claims{"realm": claims{"roles": []string{"superadmin"}}},
			claims{"realm": "admin"}},
	} {
		m.write("required.yaml", fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: echo, namespace: a}
spec:
  selector: {matchLabels: {app: echo}}
  rules:
  - when: [{key: "%s", %s}, {key: "request.headers[x-case]", values: ["%d"]}]
`, x.key, x.values, i))
		number := fmt.Sprint(i)
		suite.Eventually(t, x.key+" "+x.values, func() bool {
			headers := bearer(one.token(c.with(x.in)))
			headers["x-case"] = number
			status, _, err := m.call(sidecar, "", headers)
			return err == nil && status == http.StatusOK
		})
		for name, headers := range map[string]map[string]string{"another": bearer(one.token(c.with(x.out))), "none": {}} {
			headers["x-case"] = number
			// Without a token, a claim cannot have a forbidden value.
			want := http.StatusForbidden
			if name == "none" && strings.HasPrefix(x.values, "not") {
				want = http.StatusOK
			}
			if status, _, err := m.call(sidecar, "", headers); err != nil || status != want {
				t.Errorf("%s %s: %s: %d, %v", x.key, x.values, name, status, err)
			}
		}
	}
	m.write("required.yaml", required)
	m.eventually("a token that is asked for, again", sidecar, good, http.StatusOK)
	for name, headers := range map[string]map[string]string{"none": nil, "another claim": bearer(one.token(c.with(claims{"group": "x"}))),
		"another subject": bearer(one.token(c.with(claims{"sub": "x"})))} {
		if status, _, err := m.call(sidecar, "", headers); err != nil || status != http.StatusForbidden {
			t.Errorf("%s: %d, %v", name, status, err)
		}
	}
	m.healthy()
}

// TestServersOfKeys: a server of keys is away at first, starts, rotates its key, and stops. No token is accepted
// without its key, and nothing else is affected.
func TestServersOfKeys(t *testing.T) {
	one := newJWTIssuer(t, "127.0.0.1:7003")
	m := startJWT(t, jwtPolicy("echo", `{issuer: one, jwksUri: "`+one.url()+`/keys"}`), here...)
	c := claims{"iss": "one", "sub": "me", "exp": soon()}

	const object, field = "RequestAuthentication a/echo", "spec.jwtRules[0].jwksUri"
	if message := m.finding(object, field, true); !strings.Contains(message, one.url()) || !strings.Contains(message, "since 20") ||
		!strings.Contains(message, "no token") {
		t.Errorf("the finding is: %s", message)
	}
	first := one.token(c)
	m.eventually("without keys", sidecar, first, http.StatusUnauthorized)
	if status, _, err := m.call(sidecar, "", nil); err != nil || status != http.StatusOK {
		t.Errorf("without a token: %d, %v", status, err)
	}

	stop := one.serve(listen)
	m.eventually("the server of keys came", sidecar, first, http.StatusOK)
	m.finding(object, field, false)

	one.rotate("2")
	second := one.token(c)
	m.eventually("the new key", sidecar, second, http.StatusOK)
	m.eventually("the old key", sidecar, first, http.StatusUnauthorized)

	stop()
	if message := m.finding(object, field, true); !strings.Contains(message, "the last answer stays in force") {
		t.Errorf("the finding is: %s", message)
	}
	suite.Eventually(t, "three fetches that fail", func() bool {
		n, err := m.Pilot.Metric(t.Context(), "pilot_jwks_resolver_network_fetch_fail_total")
		must.Succeed(t, err)
		return n > 3
	})
	if status, _, err := m.call(sidecar, "", bearer(second)); err != nil || status != http.StatusOK {
		t.Errorf("while the server of keys is away: %d, %v", status, err)
	}
	m.healthy()
}

// TestGuard: unless a variable allows it, the control plane fetches nothing from its own host.
func TestGuard(t *testing.T) {
	one := newJWTIssuer(t, "127.0.0.1:7004")
	t.Cleanup(one.serve(listen))
	m := startJWT(t, jwtPolicy("echo", `{issuer: one, jwksUri: "`+one.url()+`/keys"}`))
	if message := m.finding("RequestAuthentication a/echo", "spec.jwtRules[0].jwksUri", true); !strings.Contains(message,
		"may not be fetched from") {
		t.Errorf("the finding is: %s", message)
	}
	m.eventually("a token", sidecar, one.token(claims{"iss": "one", "exp": soon()}), http.StatusUnauthorized)
}

// TestClaimsRoute sends requests through a gateway whose routes depend on claims of valid tokens.
func TestClaimsRoute(t *testing.T) {
	one, stranger := newJWTIssuer(t, ""), newJWTIssuer(t, "")
	m := startJWT(t, jwtPolicy("gateway", `{issuer: one, forwardOriginalToken: true, jwks: '`+one.keySet()+`'}`))
	c := claims{"iss": "one", "exp": soon()}
	m.eventually("a good token", jwtGateway, one.token(c), http.StatusOK)
	m.eventually("a bad token", jwtGateway, stranger.token(c), http.StatusUnauthorized)
	const plan = "https://example.com/plan"
	for name, r := range map[string]struct {
		headers map[string]string
		route   string // empty means that it is refused
	}{
		"no token":           {nil, "any"},
		"no claim":           {bearer(one.token(c)), "any"},
		"the claim":          {bearer(one.token(c.with(claims{"group": "beta"}))), "beta"},
		"in a list":          {bearer(one.token(c.with(claims{"group": []string{"alpha", "beta"}}))), "beta"},
		"another value":      {bearer(one.token(c.with(claims{"group": "gamma"}))), "any"},
		"a nested claim":     {bearer(one.token(c.with(claims{plan: claims{"name": "gold-1"}}))), "gold"},
		"one that is barred": {bearer(one.token(c.with(claims{plan: claims{"name": "gold-1"}, "group": "blocked"}))), "any"},
		"of a bad token":     {bearer(stranger.token(c.with(claims{"group": "beta"}))), ""},
	} {
		status, got, err := m.call(jwtGateway, "", r.headers)
		if err != nil || (status == http.StatusOK) != (r.route != "") || got.Header.Get("x-route") != r.route {
			t.Errorf("%s: %d, route %q, want %q: %v", name, status, got.Header.Get("x-route"), r.route, err)
		}
	}
	m.healthy()
}

// TestProxiesFetch: proxies fetch the keys from a service of the mesh, and the control plane from a server outside it.
func TestProxiesFetch(t *testing.T) {
	inside, outside := newJWTIssuer(t, "10.10.0.14:8080"), newJWTIssuer(t, "127.0.0.1:7005")
	t.Cleanup(outside.serve(listen))
	m := startJWT(t, jwtPolicy("echo", `{issuer: inside, jwksUri: "http://keys.a.svc.cluster.local/keys"}`,
		`{issuer: outside, jwksUri: "`+outside.url()+`/keys"}`),
		append(here, "PILOT_JWT_ENABLE_REMOTE_JWKS=hybrid")...)
	t.Cleanup(inside.serve(m.Pod("keys").Location.Listen))
	for name, i := range map[string]*jwtIssuer{"inside": inside, "outside": outside} {
		m.eventually(name, sidecar, i.token(claims{"iss": name, "exp": soon()}), http.StatusOK)
		m.eventually(name+", by another key", sidecar, newJWTIssuer(t, "").token(claims{"iss": name, "exp": soon()}), http.StatusUnauthorized)
	}
	m.healthy()
}
