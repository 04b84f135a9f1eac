package traffic

import (
	"net/http"
	"os"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// TestRequiredTokens calls a sidecar whose rules require one token and accept another. Proxies of the
// newest and of the oldest version decide the same.
func TestRequiredTokens(t *testing.T) {
	t.Run("newest", testRequiredTokens)
	t.Run("oldest", func(t *testing.T) {
		t.Setenv(suite.EnvoyVar, os.Getenv(suite.OldestEnvoyVar))
		testRequiredTokens(t)
	})
}

func testRequiredTokens(t *testing.T) {
	user, scope := newJWTIssuer(t, ""), newJWTIssuer(t, "")
	m := startJWT(t, jwtPolicy("echo",
		`{issuer: user, jwks: '`+user.keySet()+`', presence: REQUIRED}`,
		`{issuer: scope, jwks: '`+scope.keySet()+`', fromHeaders: [{name: x-scope}]}`,
	))
	token := user.token(claims{"iss": "user", "exp": soon()})
	m.eventually("a required token", sidecar, token, http.StatusOK)
	m.eventually("no valid token", sidecar, scope.token(claims{"iss": "user", "exp": soon()}), http.StatusUnauthorized)
	good, expired := scope.token(claims{"iss": "scope", "exp": soon()}), scope.token(claims{"iss": "scope", "exp": 1})
	with := func(scope string) map[string]string {
		headers := bearer(token)
		headers["x-scope"] = scope
		return headers
	}
	for name, r := range map[string]struct {
		headers map[string]string
		status  int
	}{
		"no token":                            {nil, 401},
		"the other token alone":               {map[string]string{"x-scope": good}, 401},
		"the other token in the usual place":  {bearer(good), 401},
		"both tokens":                         {with(good), 200},
		"the other token expired":             {with(expired), 401},
		"a required token in the other place": {map[string]string{"x-scope": token}, 401},
	} {
		if status, _, err := m.call(sidecar, "", r.headers); err != nil || status != r.status {
			t.Errorf("%s: %d, want %d: %v", name, status, r.status, err)
		}
	}
}
