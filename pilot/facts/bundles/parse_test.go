package bundles_test

import (
	"crypto/fips140"
	"crypto/x509"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/facts/bundles"
)

// TestSpiffeBundle takes the roots of a bundle and nothing else.
func TestSpiffeBundle(t *testing.T) {
	now := time.Now()
	ca, err := pki.NewSelfSigned("example", time.Hour, now)
	must.Succeed(t, err)
	root := ca.Roots[0]
	key := func(use string, n int) jose.JSONWebKey {
		k := jose.JSONWebKey{Key: root.PublicKey, Use: use}
		for range n {
			k.Certificates = append(k.Certificates, root)
		}
		return k
	}
	bundle := func(keys ...jose.JSONWebKey) (text string) {
		fips140.WithoutEnforcement(func() { // encoding certificates computes SHA-1 thumbprints
			b, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
			must.Succeed(t, err)
			text = string(b)
		})
		return text
	}
	workload, err := pki.GenerateKey()
	must.Succeed(t, err)
	der, _, err := ca.Sign(pki.Leaf{Names: []string{"web.example"}, Key: workload.Public(), TTL: time.Minute}, now)
	must.Succeed(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	good := bundle(key("jwt-svid", 0), key("x509-svid", 1))
	for text, want := range map[string]int{
		good:                        1,
		good[:len(good)/2]:          0,
		"":                          0,
		"null":                      0,
		"[]":                        0,
		`{"keys": null}`:            0,
		`{"keys": "x"}`:             0,
		bundle():                    0,
		bundle(key("jwt-svid", 1)):  0,
		bundle(key("", 1)):          0,
		bundle(key("x509-svid", 0)): 0,
		bundle(key("x509-svid", 2)): 0,
		bundle(jose.JSONWebKey{Key: leaf.PublicKey, Use: "x509-svid", Certificates: []*x509.Certificate{leaf}}): 0,
		strings.ToUpper(good):        0,
		string(ca.Roots[0].Raw[:10]): 0,
	} {
		roots, err := bundles.Parse([]byte(text))
		if len(roots) != want || (err == nil) != (want > 0) || want > 0 && !roots[0].Equal(root) {
			t.Errorf("%.100s: %d roots, %v", text, len(roots), err)
		}
	}
}
