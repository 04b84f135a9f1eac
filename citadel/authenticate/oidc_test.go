package authenticate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
)

// TestOIDC accepts tokens of another provider by its rule alone.
func TestOIDC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "k1")
		rule := must(authenticate.ParseRule(`{"issuer":"https://idp","jwks_uri":"https://idp/keys","audiences":["mesh"]}`))
		o := authenticate.OIDC{
			Rule: rule, TrustDomains: &domains{},
			Keys: authenticate.NewKeySet(func(context.Context) ([]byte, error) { return i.jwks(), nil }),
		}
		if p, err := o.Authenticate(t.Context(),
			authenticate.Request{Token: i.token(t, map[string]any{"iss": "https://idp", "aud": "mesh"})}); err != nil || p.ID != web {
			t.Errorf("%+v, %v", p, err)
		}
		for _, changes := range []map[string]any{{"iss": "https://idp"}, {"aud": "mesh"}, {"iss": "https://idp", "aud": "mesh", "sub": "alice"}} {
			if p, err := o.Authenticate(t.Context(), authenticate.Request{Token: i.token(t, changes)}); err == nil {
				t.Errorf("%v: %+v", changes, p)
			}
		}
		changes := map[string]any{"iss": "https://idp", "aud": "mesh"}
		for name, other := range map[string]*issuer{"another key of the ID": newIssuer(t, "k1"), "a key of an unknown ID": newIssuer(t, "k2")} {
			if p, err := o.Authenticate(t.Context(), authenticate.Request{Token: other.token(t, changes)}); err == nil || p.Proved() ||
				errors.Is(err, authenticate.ErrUnavailable) {
				t.Errorf("%s: %+v, %v", name, p, err)
			}
		}
		if _, err := o.Authenticate(t.Context(), authenticate.Request{}); !errors.Is(err, authenticate.ErrNoCredential) {
			t.Errorf("without a token: %v", err)
		}
		o.Keys = authenticate.NewKeySet(func(context.Context) ([]byte, error) { return nil, errors.New("away") })
		if p, err := o.Authenticate(t.Context(),
			authenticate.Request{Token: i.token(t, changes)}); !errors.Is(err, authenticate.ErrUnavailable) ||
			p.Proved() {
			t.Errorf("without keys: %+v, %v", p, err)
		}
		for text, want := range map[string]string{`{"issuer":"x","jwksUri":"y","audiences":["z"]}`: "y", `{"issuer":"x","audiences":["z"]}`: ""} {
			if r, err := authenticate.ParseRule(text); err != nil || r.JWKSURI != want {
				t.Errorf("%q: %+v, %v", text, r, err)
			}
		}
		for _, text := range []string{
			"", "{", `{"issuer":"x"}`, `{"issuer":"x","jwks_uri":"y","audiences":[]}`,
			`{"issuer":"x","audiences":["z"],"jwks":"{}"}`, `{"issuer":"x","audiences":["z"]} {}`,
			`{"issuer":"x","audiences":["z"]}}`, `{"issuer":"x","audiences":["z"]}]`,
			`{"issuer":"x","jwks_uri":"y","jwksUri":"w","audiences":["z"]}`,
		} {
			if r, err := authenticate.ParseRule(text); err == nil {
				t.Errorf("%q: %+v", text, r)
			}
		}
	})
}
