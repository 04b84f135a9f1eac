package pki_test

import (
	"crypto/fips140"
	cryptorand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// revoke returns a list in which an authority revokes certificates.
func (a *authority) revoke(t *testing.T, list ...*x509.Certificate) []byte {
	t.Helper()
	return a.revokeWith(t, x509.UnknownSignatureAlgorithm, list...)
}

func (a *authority) revokeWith(t *testing.T, algorithm x509.SignatureAlgorithm, list ...*x509.Certificate) (text []byte) {
	t.Helper()
	template := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: start, NextUpdate: start.Add(time.Hour)}
	for _, c := range list {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: start})
	}
	issuer := *a.cert
	issuer.KeyUsage |= x509.KeyUsageCRLSign
	template.SignatureAlgorithm = algorithm
	fips140.WithoutEnforcement(func() {
		der, err := x509.CreateRevocationList(cryptorand.Reader, template, &issuer, a.key)
		must.Succeed(t, err)
		text = pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
	})
	return text
}

// TestRevocations refuses a chain in which an issuer has revoked what it signed, and no other.
func TestRevocations(t *testing.T) {
	root := newAuthority(t, "root", nil, time.Hour, nil)
	middle := newAuthority(t, "middle", root, time.Hour, nil)
	leaf := newAuthority(t, "leaf", middle, time.Hour, nil)
	stranger := newAuthority(t, "root", nil, time.Hour, nil)
	chain := []*x509.Certificate{leaf.cert, middle.cert, root.cert}
	for what, c := range map[string]struct {
		text    []byte
		revoked bool
	}{
		"nothing":                {nil, false},
		"an empty list":          {root.revoke(t), false},
		"the leaf":               {middle.revoke(t, leaf.cert), true},
		"the leaf, with SHA-1":   {middle.revokeWith(t, x509.ECDSAWithSHA1, leaf.cert), true},
		"the intermediate":       {root.revoke(t, middle.cert), true},
		"both lists":             {slices.Concat(root.revoke(t), middle.revoke(t, leaf.cert)), true},
		"another leaf":           {middle.revoke(t, stranger.cert), false},
		"the leaf, by the root":  {root.revoke(t, leaf.cert), false},
		"the leaf, by a stanger": {stranger.revoke(t, leaf.cert, middle.cert), false},
		"the root, by itself":    {root.revoke(t, root.cert), false},
	} {
		r, err := pki.ParseRevocations(c.text)
		must.Succeed(t, err)
		if err := r.Check(chain); (err != nil) != c.revoked {
			t.Errorf("%s: %v", what, err)
		}
		if string(r.Text()) != string(c.text) {
			t.Errorf("%s: the text is another", what)
		}
	}
	lists, err := pki.ParseRevocations(slices.Concat(stranger.revoke(t), middle.revoke(t), leaf.revoke(t)))
	if got := lists.SignedByNone(chain[1:]); err != nil || !slices.Equal(got, []int{1, 3}) {
		t.Errorf("the lists %v are signed by none, %v", got, err)
	}
	for what, text := range map[string]string{
		"no PEM": "x", "cut short": string(root.revoke(t)[:100]), "a certificate": string(pki.EncodeCertificates(root.cert)),
		"too long": string(root.revoke(t)) + strings.Repeat("\n", 1<<20),
		"no list":  string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")})),
	} {
		if r, err := pki.ParseRevocations([]byte(text)); err == nil {
			t.Errorf("%s: %d lists", what, r.Len())
		}
	}
}
