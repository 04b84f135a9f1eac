package traffic

import (
	"net/http"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// TestWrongRule: an invalid rule beside a valid one does not weaken it. The valid rule still refuses tokens and removes
// headers.
func TestWrongRule(t *testing.T) {
	one := newJWTIssuer(t, "")
	keys := "jwks: '" + one.keySet() + "'"
	m := startJWT(t, jwtPolicy("echo", `{issuer: other, `+keys+`}`), here...)
	m.write("policies.yaml", jwtPolicy("echo",
		`{issuer: one, `+keys+
			`, fromHeaders: [{name: x-tok}], outputPayloadToHeader: x-payload, outputClaimToHeaders: [{header: x-user, claim: sub}]}`,
		`{issuer: two, `+keys+`, fromHeaders: [{name: "x a"}]}`,
	))
	call := func(token string, headers map[string]string) (int, received) {
		if token != "" {
			headers["x-tok"] = token
		}
		status, got, err := m.call(sidecar, "", headers)
		if err != nil {
			t.Error(err)
		}
		return status, got
	}
	suite.Eventually(t, "a bad token is refused", func() bool {
		status, _ := call("garbage", map[string]string{})
		return status == http.StatusUnauthorized
	})
	good := one.token(claims{"iss": "one", "sub": "me", "exp": soon()})
	for name, c := range map[string]struct {
		token  string
		status int
		user   string
	}{
		"no token":             {"", http.StatusOK, ""},
		"a good token":         {good, http.StatusOK, "me"},
		"a wrong signature":    {good[:strings.LastIndexByte(good, '.')] + ".AAAA", http.StatusUnauthorized, ""},
		"of the unusable rule": {one.token(claims{"iss": "two", "sub": "me", "exp": soon()}), http.StatusUnauthorized, ""},
	} {
		status, got := call(c.token, map[string]string{"x-payload": "forged", "x-user": "admin"})
		if status != c.status || got.Header.Get("x-user") != c.user || got.Header.Get("x-payload") == "forged" {
			t.Errorf("%s: %d, want %d, and the application has %v", name, status, c.status, got)
		}
	}
}
