package jwks_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestAcceptsNone makes the key again from its text, which shows that its private key is unknown.
func TestAcceptsNone(t *testing.T) {
	x := sha256.Sum256([]byte("a key that nobody holds 0"))
	set, err := jwks.Parse([]byte(jwks.AcceptsNone))
	must.Succeed(t, err)
	key, ok := set.Key("nobody").Key.(*ecdsa.PublicKey)
	//nolint:staticcheck // a test of the point itself
	if !ok || key.X.Cmp(new(big.Int).SetBytes(x[:])) != 0 || key.Y.Bit(0) != 0 || !elliptic.P256().IsOnCurve(key.X, key.Y) {
		t.Errorf("%+v", key)
	}
	if text, changed, err := jwks.Inline(jwks.AcceptsNone); text != jwks.AcceptsNone || changed != nil || err != nil {
		t.Errorf("%s %v %v", text, changed, err)
	}
}

// TestInline leaves out private and unusable keys, and nothing else.
func TestInline(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	encode := func(v any) string {
		b, err := json.Marshal(v)
		must.Succeed(t, err)
		return string(b)
	}
	set := func(keys ...string) string { return `{ "keys": [` + strings.Join(keys, ", ") + `]}` }
	public := encode(jose.JSONWebKey{Key: &key.PublicKey, KeyID: "a"})
	private := encode(jose.JSONWebKey{Key: key, KeyID: "a"})
	var certified string
	fips140.WithoutEnforcement(func() { // encoding a certificate computes a SHA-1 thumbprint
		certified = encode(jose.JSONWebKey{Key: key, KeyID: "a", Certificates: []*x509.Certificate{certificate(t, key)}})
	})
	const secret = `{"kty":"oct","k":"c2VjcmV0","kid":"s"}`
	for name, c := range map[string]struct {
		text, want string // want is empty for an error
		changed    int
	}{
		"public keys": {set(public, secret), set(public, secret), 0},
		"a private key": {set(private, secret),
			encode(map[string]any{"keys": []json.RawMessage{json.RawMessage(public), json.RawMessage(secret)}}), 1},
		"a private key with a certificate": {set(certified), encode(map[string]any{"keys": []json.RawMessage{json.RawMessage(public)}}), 1},
		"half a private": {set(strings.TrimSuffix(public, "}") + `,"P":"AQ","q":"AQ"}`),
			encode(map[string]any{"keys": []json.RawMessage{json.RawMessage(public)}}), 1},
		"two lists": {`{"keys":[` + private + `],"keys":[` + public + `]}`,
			encode(map[string]any{"keys": []json.RawMessage{json.RawMessage(public)}}), 1},
		"capital letters": {`{"Keys":[` + public + `]}`, encode(map[string]any{"keys": []json.RawMessage{json.RawMessage(public)}}), 1},
		"a weak key": {
			set(public, `{"kty":"RSA","e":"AQAB","n":"zyzUIUrqTQWlXzTzRBYzOgK5cTwEGCkWbUqVbpUR8Ky3gwGwzBuxZSO2kl3aUgVxqMIgNAmDfvRVtWlaqAzZPw"}`),
			encode(map[string]any{"keys": []json.RawMessage{json.RawMessage(public)}}), 1},
		"none":             {set(), "", 0},
		"nothing usable":   {set(`{"kty":"x"}`, `7`), "", 0},
		"no set":           {`[]`, "", 0},
		"an empty secret":  {set(`{"kty":"oct","k":""}`), "", 0},
		"a key of nothing": {`{"keys":null}`, "", 0},
	} {
		got, changed, err := jwks.Inline(c.text)
		if got != c.want || (err != nil) != (c.want == "") || err == nil && len(changed) != c.changed {
			t.Errorf("%s: %s, %v, %v", name, got, changed, err)
		}
		if strings.Contains(got, `"d":`) {
			t.Errorf("%s: a private key in %s", name, got)
		}
	}
}

// FuzzInline shows that no text makes a set with a private key, or one that is not a set.
func FuzzInline(f *testing.F) {
	f.Add(jwks.AcceptsNone)
	f.Add(`{"keys":[{"kty":"oct","k":"c2VjcmV0"},null,7,{"kty":"EC","crv":"P-256","x":"","y":"","d":""}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		set, changed, err := jwks.Inline(text)
		if err != nil {
			return
		}
		if again, more, err := jwks.Inline(set); err != nil || more != nil || again != set {
			t.Errorf("%q becomes %q, and that %q, %v, %v", text, set, again, more, err)
		}
		if len(changed) == 0 && set != text {
			t.Errorf("%q becomes %q, and nobody says so", text, set)
		}
	})
}

// FuzzParse shows that no text makes a set with a private key.
func FuzzParse(f *testing.F) {
	f.Add([]byte(jwks.AcceptsNone))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"},null,7]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := jwks.Parse(text)
		if err != nil {
			return
		}
		out, err := s.Encode()
		must.Succeed(t, err)
		var again jose.JSONWebKeySet
		if err := json.Unmarshal(out, &again); err != nil || len(again.Keys) == 0 {
			t.Fatalf("%s: %v", out, err)
		}
		for _, k := range again.Keys {
			if !k.IsPublic() {
				t.Errorf("a key that is not public in %s", out)
			}
		}
	})
}
