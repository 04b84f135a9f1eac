package pki_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// authority is a CA of tests.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority returns a CA that an issuer signed; a root where that is nil.
func newAuthority(t *testing.T, name string, issuer *authority, lifetime time.Duration,
	change func(*x509.Certificate), curve ...elliptic.Curve) *authority {
	t.Helper()
	key, err := pki.GenerateKey()
	for _, c := range curve {
		key, err = ecdsa.GenerateKey(c, cryptorand.Reader)
	}
	must.Succeed(t, err)
	n, err := cryptorand.Int(cryptorand.Reader, big.NewInt(1<<62))
	must.Succeed(t, err)
	c := &x509.Certificate{
		SerialNumber: n, Subject: pkix.Name{CommonName: name}, NotBefore: start.Add(-time.Hour), NotAfter: start.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(c)
	}
	if issuer == nil {
		issuer = &authority{c, key}
	}
	der, err := x509.CreateCertificate(cryptorand.Reader, c, issuer.cert, key.Public(), issuer.key)
	must.Succeed(t, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return &authority{cert, key}
}

func (a *authority) pem(t *testing.T) []byte {
	t.Helper()
	k, err := pki.EncodeKey(a.key)
	must.Succeed(t, err)
	return k
}

// TestBundle reads bundles that are whole, and such that are not.
func TestBundle(t *testing.T) {
	const year = 365 * 24 * time.Hour
	root := newAuthority(t, "root", nil, 10*year, nil)
	middle := newAuthority(t, "middle", root, 5*year, nil)
	own := newAuthority(t, "own", middle, 2*year, nil)
	old := newAuthority(t, "old root", nil, year, nil)
	expired := newAuthority(t, "expired", root, -time.Minute, nil)
	notYet := newAuthority(t, "not yet", root, year, func(c *x509.Certificate) { c.NotBefore = start.Add(time.Minute) })
	server := newAuthority(t, "server", root, year, func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature })
	signs := newAuthority(t, "signs nothing", root, year, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
	certs := pki.EncodeCertificates
	spoken := func(text []byte) []byte {
		return append(append([]byte("Certificate:\n    Data:\n"), text...), "# end"...)
	}
	joint := append(bytes.TrimSpace(certs(root.cert)), certs(root.cert)...)
	for name, c := range map[string]struct {
		files    pki.Files
		error    string
		chain    int
		roots    int
		notAfter time.Duration
	}{
		"root": {pki.Files{Certificate: certs(root.cert), Key: root.pem(t), Roots: certs(root.cert)}, "", 0, 1, 10 * year},
		"intermediate": {pki.Files{Certificate: certs(own.cert), Key: own.pem(t), Chain: certs(own.cert, middle.cert), Roots: certs(root.cert)},
			"", 2, 1, 2 * year},
		"chain without own": {pki.Files{Certificate: certs(own.cert), Key: own.pem(t), Chain: certs(middle.cert), Roots: certs(root.cert)},
			"", 2, 1, 2 * year},
		"chain with the root": {
			pki.Files{Certificate: certs(own.cert), Key: own.pem(t), Chain: certs(root.cert, middle.cert, own.cert), Roots: certs(root.cert)},
			"", 2, 1, 2 * year,
		},
		"two roots": {pki.Files{Certificate: certs(own.cert), Key: own.pem(t), Chain: certs(middle.cert), Roots: certs(old.cert, root.cert)},
			"", 2, 2, 2 * year},
		"text around": {pki.Files{Certificate: spoken(certs(own.cert)), Key: spoken(own.pem(t)),
			Chain: spoken(certs(middle.cert)), Roots: spoken(certs(root.cert))}, "", 2, 1, 2 * year},
		"a broken joint": {pki.Files{Certificate: certs(root.cert), Key: root.pem(t), Roots: append(certs(root.cert), joint...)},
			"the root certificates: PEM block 2 cannot be read", 0, 0, 0},
		"text alone":     {pki.Files{Certificate: []byte("# end"), Key: root.pem(t), Roots: certs(root.cert)}, "no certificate", 0, 0, 0},
		"no certificate": {pki.Files{Key: own.pem(t), Roots: certs(root.cert)}, "certificate is missing", 0, 0, 0},
		"no key":         {pki.Files{Certificate: certs(root.cert), Roots: certs(root.cert)}, "private key is missing", 0, 0, 0},
		"no root": {pki.Files{Certificate: certs(root.cert), Key: root.pem(t), Roots: []byte("\n")},
			"root certificate is missing", 0, 0, 0},
		"another key": {pki.Files{Certificate: certs(root.cert), Key: own.pem(t), Roots: certs(root.cert)},
			"does not belong to its certificate", 0, 0, 0},
		"another root": {pki.Files{Certificate: certs(own.cert), Key: own.pem(t), Chain: certs(middle.cert), Roots: certs(old.cert)},
			"does not lead to a root", 0, 0, 0},
		"chain with a gap": {pki.Files{Certificate: certs(own.cert), Key: own.pem(t), Roots: certs(root.cert)},
			"does not lead to a root", 0, 0, 0},
		"expired":       {pki.Files{Certificate: certs(expired.cert), Key: expired.pem(t), Roots: certs(root.cert)}, "expired at", 0, 0, 0},
		"not yet valid": {pki.Files{Certificate: certs(notYet.cert), Key: notYet.pem(t), Roots: certs(root.cert)}, "valid from", 0, 0, 0},
		"no CA":         {pki.Files{Certificate: certs(server.cert), Key: server.pem(t), Roots: certs(root.cert)}, "may not sign", 0, 0, 0},
		"no signing":    {pki.Files{Certificate: certs(signs.cert), Key: signs.pem(t), Roots: certs(root.cert)}, "may not sign", 0, 0, 0},
		"broken certificate": {pki.Files{Certificate: certs(root.cert)[:300], Key: root.pem(t), Roots: certs(root.cert)},
			"PEM block 1 cannot be read", 0, 0, 0},
		"key as certificate": {pki.Files{Certificate: root.pem(t), Key: root.pem(t), Roots: certs(root.cert)}, "PRIVATE KEY", 0, 0, 0},
		"certificate as key": {pki.Files{Certificate: certs(root.cert), Key: certs(root.cert), Roots: certs(root.cert)}, "CERTIFICATE", 0, 0, 0},
		"too long": {pki.Files{Certificate: certs(root.cert), Key: root.pem(t), Roots: bytes.Repeat(certs(root.cert), 200)},
			"bytes", 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := pki.ParseBundle(c.files, start)
			if c.error != "" {
				if err == nil || !strings.Contains(err.Error(), c.error) {
					t.Fatalf("want an error with %q, not %v", c.error, err)
				}
				return
			}
			must.Succeed(t, err)
			if len(b.Chain) != c.chain || len(b.Roots) != c.roots || !b.Roots[0].Equal(root.cert) || !b.NotAfter().Equal(start.Add(c.notAfter)) {
				t.Errorf("a chain of %d, %d roots, the first %v, to %v", len(b.Chain), len(b.Roots), b.Roots[0].Subject, b.NotAfter())
			}
			text, err := b.Encode()
			must.Succeed(t, err)
			again, err := pki.ParseBundle(text, start)
			if err != nil || !again.Certificate.Equal(b.Certificate) || len(again.Chain) != len(b.Chain) || len(again.Roots) != len(b.Roots) {
				t.Errorf("written and read again: %v, %v", again, err)
			}
		})
	}
}

// TestAuthorityKeys: a CA may have keys that workloads may not.
func TestAuthorityKeys(t *testing.T) {
	curve := func(c elliptic.Curve) crypto.PublicKey { return &ecdsa.PublicKey{Curve: c} }
	bits := func(n uint) crypto.PublicKey {
		return &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), n-1), E: 65537}
	}
	for name, c := range map[string]struct {
		key                 crypto.PublicKey
		authority, workload bool
	}{
		"RSA-1024": {bits(1024), false, false}, "RSA-2048": {bits(2048), true, true}, "RSA-4096": {bits(4096), true, true},
		"RSA-8192": {bits(8192), true, false},
		"RSA-8193": {bits(8193), false, false}, "an exponent": {&rsa.PublicKey{N: bits(2048).(*rsa.PublicKey).N, E: 3}, false, false},
		"P-224": {curve(elliptic.P224()), false, false}, "P-256": {curve(elliptic.P256()), true, true},
		"P-384": {curve(elliptic.P384()), true, true}, "P-521": {curve(elliptic.P521()), true, false},
		"Ed25519": {ed25519.PublicKey{}, false, false},
	} {
		if err := pki.CheckAuthorityKey(c.key); (err == nil) != c.authority {
			t.Errorf("%s of a CA: %v", name, err)
		}
		if err := pki.CheckPublicKey(c.key); (err == nil) != c.workload {
			t.Errorf("%s of a workload: %v", name, err)
		}
	}
	ca := newAuthority(t, "P-521", nil, time.Hour, nil, elliptic.P521())
	text := pki.EncodeCertificates(ca.cert)
	if _, err := pki.ParseBundle(pki.Files{Certificate: text, Key: ca.pem(t), Roots: text}, start); err != nil {
		t.Error(err)
	}
}

// TestBundleExpiresWithItsChain holds that no certificate outlives one that leads to its root.
func TestBundleExpiresWithItsChain(t *testing.T) {
	root := newAuthority(t, "root", nil, 100*time.Hour, nil)
	middle := newAuthority(t, "middle", root, time.Hour, nil)
	own := newAuthority(t, "own", middle, 50*time.Hour, nil)
	b, err := pki.ParseBundle(pki.Files{
		Certificate: pki.EncodeCertificates(own.cert), Key: own.pem(t),
		Chain: pki.EncodeCertificates(middle.cert), Roots: pki.EncodeCertificates(root.cert),
	}, start)
	must.Succeed(t, err)
	if !b.NotAfter().Equal(start.Add(time.Hour)) {
		t.Errorf("to %v", b.NotAfter())
	}
}

// TestErrorsHaveNoKey holds that an error about a key has nothing of it.
func TestErrorsHaveNoKey(t *testing.T) {
	key := newAuthority(t, "root", nil, time.Hour, nil).pem(t)
	for i := range key {
		broken := bytes.Clone(key)
		broken[i] ^= 4
		_, err := pki.ParseKey(broken)
		if err == nil {
			continue
		}
		for line := range strings.Lines(string(broken)) {
			if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") && strings.Contains(err.Error(), line) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
}
