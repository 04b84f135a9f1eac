package jwks_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestParse returns public keys that are strong enough, whatever else a set has.
func TestParse(t *testing.T) {
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	const weak = `{"kty":"RSA","kid":"weak","e":"AQAB",` +
		`"n":"zyzUIUrqTQWlXzTzRBYzOgK5cTwEGCkWbUqVbpUR8Ky3gwGwzBuxZSO2kl3aUgVxqMIgNAmDfvRVtWlaqAzZPw"}`
	set := func(keys ...any) []byte {
		var list []string
		for _, k := range keys {
			if text, ok := k.(string); ok {
				list = append(list, text)
				continue
			}
			fips140.WithoutEnforcement(func() { // encoding a certificate computes a SHA-1 thumbprint
				b, err := json.Marshal(k)
				must.Succeed(t, err)
				list = append(list, string(b))
			})
		}
		return fmt.Appendf(nil, `{"keys":[%s]}`, strings.Join(list, ","))
	}
	good := jose.JSONWebKey{Key: &strong.PublicKey, KeyID: "rsa", Algorithm: "RS256", Use: "sig"}
	for name, c := range map[string]struct {
		text []byte
		ids  []string // nil: an error
	}{
		"one": {set(good), []string{"rsa"}},
		"kinds": {set(good, jose.JSONWebKey{Key: curve.Public(), KeyID: "ec"}, jose.JSONWebKey{Key: edwards.Public(), KeyID: "ed"}),
			[]string{"ec", "ed", "rsa"}},
		"private keys": {set(jose.JSONWebKey{Key: strong, KeyID: "rsa"}, jose.JSONWebKey{Key: curve, KeyID: "ec"},
			jose.JSONWebKey{Key: edwards, KeyID: "ed"}), []string{"ec", "ed", "rsa"}},
		"a shared secret": {set(good, jose.JSONWebKey{Key: []byte("secret"), KeyID: "oct"}), []string{"rsa"}},
		"only a secret":   {set(jose.JSONWebKey{Key: []byte("secret"), KeyID: "oct"}), nil},
		"a weak key":      {set(weak, good), []string{"rsa"}},
		"only a weak key": {set(weak), nil},
		"for encryption":  {set(jose.JSONWebKey{Key: &strong.PublicKey, KeyID: "enc", Use: "enc"}, good), []string{"rsa"}},
		"a long ID":       {set(good, jose.JSONWebKey{Key: curve.Public(), KeyID: strings.Repeat("ec", 1000)}), []string{"rsa"}},
		"a certificate": {set(jose.JSONWebKey{Key: &strong.PublicKey, KeyID: "rsa", Certificates: []*x509.Certificate{certificate(t, strong)}}),
			[]string{"rsa"}},
		"an unknown kind":    {set(`{"kty":"XYZ","kid":"x"}`, good), []string{"rsa"}},
		"a key that is none": {set(`7`, good), []string{"rsa"}},
		"no keys":            {[]byte(`{"keys":[]}`), nil},
		"no object":          {[]byte(`[]`), nil},
		"no JSON":            {[]byte(`hello`), nil},
		"many keys":          {set(slices.Repeat([]any{good}, 10_000)...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := jwks.Parse(c.text)
			if c.ids == nil {
				if err == nil {
					t.Errorf("%+v", s)
				}
				return
			}
			must.Succeed(t, err)
			for _, id := range []string{"rsa", "ec", "ed", "oct", "weak", "enc", "x"} {
				if k := s.Key(id); (k != nil) != slices.Contains(c.ids, id) || k != nil && !k.IsPublic() {
					t.Errorf("%s: %v", id, k)
				}
			}
			if k := s.Key(""); (k != nil) != (len(c.ids) == 1) {
				t.Errorf("without an ID: %v", k)
			}
			out, err := s.Encode()
			must.Succeed(t, err)
			for _, private := range []string{`"d":`, `"p":`, `"q":`, `"dp":`, `"k":`, `"x5c":`} {
				if bytes.Contains(out, []byte(private)) {
					t.Errorf("%s in %s", private, out)
				}
			}
		})
	}
}

// certificate returns one that a key signed for itself.
func certificate(t *testing.T, key *rsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, &key.PublicKey, key)
	must.Succeed(t, err)
	c, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return c
}
