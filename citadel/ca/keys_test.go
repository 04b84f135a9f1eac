package ca_test

import (
	"crypto/dsa" //nolint:staticcheck // requests may have such keys
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// withKey returns a request in which another public key stands, so that its signature is that of nobody.
func withKey(t *testing.T, text []byte, key any) []byte {
	t.Helper()
	var request struct {
		Info struct {
			Version    int
			Subject    asn1.RawValue
			PublicKey  asn1.RawValue
			Attributes asn1.RawValue `asn1:"optional,tag:0"`
		}
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(pemBytes(text), &request); err != nil {
		t.Fatal(err)
	}
	var err error
	if request.Info.PublicKey.FullBytes, err = asn1.Marshal(key); err != nil {
		t.Fatal(err)
	}
	der, err := asn1.Marshal(request)
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// publicKey is a key as it stands in a request.
type publicKey struct {
	Algorithm pkix.AlgorithmIdentifier
	Key       asn1.BitString
}

func bits(b []byte) asn1.BitString { return asn1.BitString{Bytes: b, BitLength: 8 * len(b)} }

// TestKeys asks with keys that are weak, that make each check expensive, or that are none. Each is refused for what it
// is before its signature is looked at: none of the signatures is right.
func TestKeys(t *testing.T) {
	c, _ := newCA(t, 1000000000000000)
	good := request(t, newKey(t), &x509.CertificateRequest{})
	rsaKey := func(size uint, exponent int64) publicKey {
		n := new(big.Int).Lsh(big.NewInt(1), size-1)
		n.Add(n, big.NewInt(1))
		der, err := asn1.Marshal(struct{ N, E *big.Int }{n, big.NewInt(exponent)})
		must.Succeed(t, err)
		id := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}
		return publicKey{pkix.AlgorithmIdentifier{Algorithm: id, Parameters: asn1.NullRawValue}, bits(der)}
	}
	raw := func(der []byte) asn1.RawValue { return asn1.RawValue{FullBytes: der} }
	public, _, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	edwards, err := x509.MarshalPKIXPublicKey(public)
	must.Succeed(t, err)
	curve, err := x509.MarshalPKIXPublicKey(newKey(t).Public())
	must.Succeed(t, err)
	off := append([]byte{}, curve...)
	off[len(off)-1] ^= 1
	parameters, err := asn1.Marshal(dsa.Parameters{P: big.NewInt(23), Q: big.NewInt(11), G: big.NewInt(4)})
	must.Succeed(t, err)
	number, err := asn1.Marshal(big.NewInt(9))
	must.Succeed(t, err)
	for name, x := range map[string]struct {
		key   any
		error string
	}{
		"RSA 512":               {rsaKey(512, 65537), "512 bits"},
		"RSA 8192":              {rsaKey(8192, 65537), "8192 bits"},
		"RSA 32768":             {rsaKey(32768, 65537), "32768 bits"},
		"RSA with exponent 1":   {rsaKey(2048, 1), "exponent"},
		"RSA with exponent 3":   {rsaKey(2048, 3), "exponent"},
		"RSA with a large one":  {rsaKey(2048, 1<<31-1), "exponent"},
		"RSA with a negative":   {rsaKey(2048, -3), "exponent"},
		"Ed25519":               {raw(edwards), "RSA or ECDSA"},
		"a point off its curve": {raw(off), "parsed"},
		"DSA": {publicKey{
			pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10040, 4, 1}, Parameters: raw(parameters)}, bits(number),
		}, "RSA or ECDSA"},
		"of no kind": {publicKey{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 3}}, bits([]byte{1})}, "RSA or ECDSA"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := issue(c, web, withKey(t, good, x.key), 0)
			if err == nil || !strings.Contains(err.Error(), x.error) || errors.Is(err, ca.ErrUnavailable) || errors.Is(err, ca.ErrInternal) {
				t.Errorf("want an error with %q, not %v", x.error, err)
			}
		})
	}
	if _, err := issue(c, web, good, 0); err != nil {
		t.Errorf("the request that the others are made of: %v", err)
	}
}
