package ca_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/fips140"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	web   = identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func newCA(t testing.TB, lifetime time.Duration) (*ca.CA, *pki.Bundle) {
	t.Helper()
	b, err := pki.NewSelfSigned("cluster.local", lifetime, start)
	must.Succeed(t, err)
	c := ca.New(ca.Options{TTL: 24 * time.Hour, MaxTTL: 24 * time.Hour, Now: func() time.Time { return start }})
	c.Use(b)
	return c, b
}

func issue(c *ca.CA, id identity.ID, csr []byte, ttl time.Duration) (*ca.Issued, error) {
	return c.Issue(context.Background(), ca.Request{ID: id, CSR: csr, TTL: ttl})
}

// request returns a certificate request. It is made as by a client outside the mode fips140=only.
func request(t testing.TB, key crypto.Signer, r *x509.CertificateRequest) (text []byte) {
	t.Helper()
	fips140.WithoutEnforcement(func() {
		der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
		must.Succeed(t, err)
		text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	})
	return text
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	k, err := pki.GenerateKey()
	must.Succeed(t, err)
	return k
}

func leaf(t testing.TB, i *ca.Issued) *x509.Certificate {
	t.Helper()
	list, err := pki.ParseCertificates(i.Chain[0])
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0]
}

// TestProfile holds what a certificate of a workload looks like.
func TestProfile(t *testing.T) {
	c, b := newCA(t, 10*365*24*time.Hour)
	key := newKey(t)
	i, err := issue(c, web,
		request(t, key, &x509.CertificateRequest{URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/a/sa/web"}}}), 0)
	must.Succeed(t, err)
	l := leaf(t, i)
	critical := false
	for _, e := range l.Extensions {
		critical = critical || e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) && e.Critical
	}
	switch {
	case len(l.URIs) != 1 || l.URIs[0].String() != web.String(), !critical, len(l.Subject.Names) > 0:
		t.Errorf("names: %v, critical %v, subject %v", l.URIs, critical, l.Subject)
	case l.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment,
		!slices.Equal(l.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}), l.IsCA:
		t.Errorf("usage %v %v", l.KeyUsage, l.ExtKeyUsage)
	case !l.NotBefore.Equal(start.Add(-2 * time.Minute)), !l.NotAfter.Equal(start.Add(24 * time.Hour)), !i.NotAfter.Equal(l.NotAfter):
		t.Errorf("valid from %v to %v", l.NotBefore, l.NotAfter)
	case l.SerialNumber.BitLen() < 64:
		t.Errorf("serial number %v", l.SerialNumber)
	case i.Extra:
		t.Error("the request asked for nothing else")
	}
	if len(i.Chain) != 2 || !bytes.Equal(i.Chain[1], pki.EncodeCertificates(b.Roots...)) {
		t.Errorf("a chain of %d: want the leaf and the root", len(i.Chain))
	}
}

// TestRSA plugs in a CA with an RSA key, as OpenSSL writes it.
func TestRSA(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"},
		NotBefore: start.Add(-time.Hour), NotAfter: start.Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	must.Succeed(t, err)
	root, err = x509.ParseCertificate(der)
	must.Succeed(t, err)
	b, err := pki.ParseBundle(pki.Files{
		Certificate: pki.EncodeCertificates(root), Roots: pki.EncodeCertificates(root),
		Key: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}, start)
	must.Succeed(t, err)
	c := ca.New(ca.Options{TTL: time.Hour, MaxTTL: time.Hour, Now: func() time.Time { return start }})
	c.Use(b)
	for what, own := range map[string]crypto.Signer{"ECDSA": newKey(t), "RSA": key} {
		i, err := issue(c, web, request(t, own, &x509.CertificateRequest{}), 0)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if l := leaf(t, i); l.CheckSignatureFrom(root) != nil || l.SignatureAlgorithm != x509.SHA256WithRSA {
			t.Errorf("%s: signed with %v", what, l.SignatureAlgorithm)
		}
	}
}

// TestRequests asks with requests of every kind: whatever they ask for, a certificate is the caller's own or there is
// none.
func TestRequests(t *testing.T) {
	c, _ := newCA(t, 10*365*24*time.Hour)
	key := newKey(t)
	rsaKey := func(bits int) crypto.Signer {
		k, err := rsa.GenerateKey(rand.Reader, bits)
		must.Succeed(t, err)
		return k
	}
	curve := func(c elliptic.Curve) crypto.Signer {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		must.Succeed(t, err)
		return k
	}
	good := request(t, key, &x509.CertificateRequest{})
	old := request(t, key, &x509.CertificateRequest{SignatureAlgorithm: x509.ECDSAWithSHA1})
	dsa := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: bytes.ReplaceAll(pemBytes(old),
		[]byte{0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1}, []byte{0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3})})
	oldError, dsaError := "", "signature"
	if fips140.Enforced() {
		oldError, dsaError = "ECDSA-SHA1, which FIPS 140-3 does not approve", "DSA-SHA1, which FIPS 140-3 does not approve"
	}
	other := []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/b/sa/db"}}
	many := make([]string, 1000)
	for i := range many {
		many[i] = "x.a"
	}
	constraints, err := asn1.Marshal(struct{ CA bool }{true})
	must.Succeed(t, err)
	forged := bytes.Clone(pemBytes(good))
	forged[len(forged)-1] ^= 1
	for name, x := range map[string]struct {
		csr   []byte
		ttl   time.Duration
		error string // empty: a certificate is issued
		extra bool
	}{
		"plain":          {csr: good},
		"RSA 2048":       {csr: request(t, rsaKey(2048), &x509.CertificateRequest{})},
		"P-384":          {csr: request(t, curve(elliptic.P384()), &x509.CertificateRequest{})},
		"an hour":        {csr: good, ttl: time.Hour},
		"other identity": {csr: request(t, key, &x509.CertificateRequest{URIs: other}), extra: true},
		"two identities": {csr: request(t, key, &x509.CertificateRequest{URIs: append(other, other...)}), extra: true},
		"common name":    {csr: request(t, key, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "istiod"}})},
		"DNS names":      {csr: request(t, key, &x509.CertificateRequest{DNSNames: many}), extra: true},
		"address and mail": {
			csr: request(t, key, &x509.CertificateRequest{IPAddresses: []net.IP{{1, 2, 3, 4}}, EmailAddresses: []string{"a@b"}}), extra: true,
		},
		"wants to be a CA": {csr: request(t, key, &x509.CertificateRequest{
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: constraints}},
		})},
		"wants to sign": {csr: request(t, key, &x509.CertificateRequest{
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true, Value: []byte{3, 2, 1, 6}}},
		})},
		"name constraints": {csr: request(t, key, &x509.CertificateRequest{
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 30}, Critical: true, Value: []byte{0x30, 0}}},
		})},
		"a name with a null byte": {csr: request(t, key,
			&x509.CertificateRequest{Subject: pkix.Name{CommonName: "web\x00.example"}, DNSNames: []string{"a\x00.example"}}), extra: true},
		"unknown critical": {csr: request(t, key,
			&x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}})},
		"RSA 1024":      {csr: request(t, weak(t, 1024), &x509.CertificateRequest{}), error: "1024 bits"},
		"SHA-1":         {csr: old, error: oldError},
		"DSA":           {csr: dsa, error: dsaError},
		"P-224":         {csr: request(t, curve(elliptic.P224()), &x509.CertificateRequest{}), error: "P-224"},
		"P-521":         {csr: request(t, curve(elliptic.P521()), &x509.CertificateRequest{}), error: "P-521"},
		"forged":        {csr: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: forged}), error: "signature"},
		"nothing":       {error: "no PEM"},
		"no PEM":        {csr: []byte("hello"), error: "no PEM"},
		"a certificate": {csr: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pemBytes(good)}), error: `"CERTIFICATE"`},
		"broken": {csr: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: pemBytes(good)[1:]}),
			error: "cannot be parsed"},
		"two requests":             {csr: append(bytes.Clone(good), good...), error: "more after"},
		"too long":                 {csr: append(bytes.Clone(good), make([]byte, 16<<10)...), error: "bytes"},
		"much broken PEM":          {csr: []byte(strings.Repeat("-----BEGIN ", 80<<10)), error: "bytes"},
		"negative lifetime":        {csr: good, ttl: -1, error: "24h"},
		"more than a day":          {csr: good, ttl: 24*time.Hour + 1, error: "24h"},
		"the longest there can be": {csr: good, ttl: 1<<63 - 1, error: "24h"},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := issue(c, web, x.csr, x.ttl)
			if x.error != "" {
				if err == nil || !strings.Contains(err.Error(), x.error) || errors.Is(err, ca.ErrUnavailable) || errors.Is(err, ca.ErrInternal) {
					t.Fatalf("want an error with %q, not %v", x.error, err)
				}
				return
			}
			must.Succeed(t, err)
			l := leaf(t, i)
			if len(l.URIs) != 1 || l.URIs[0].String() != web.String() || len(l.DNSNames)+len(l.IPAddresses)+len(l.EmailAddresses) > 0 ||
				l.Subject.CommonName != "" || l.IsCA || l.KeyUsage&x509.KeyUsageCertSign != 0 ||
				len(l.UnhandledCriticalExtensions) > 0 || l.PermittedDNSDomainsCritical {
				t.Errorf("the certificate is for %v, %v", l.URIs, l.DNSNames)
			}
			if i.Extra != x.extra {
				t.Errorf("extra %v", i.Extra)
			}
		})
	}
	for _, id := range []identity.ID{{}, {TrustDomain: "x", Namespace: "a"},
		{TrustDomain: "x", Namespace: "a/../b", ServiceAccount: "c"}, {TrustDomain: "x", Namespace: "a", ServiceAccount: "b?"}} {
		if _, err := issue(c, id, good, 0); err == nil {
			t.Errorf("a certificate for %+v", id)
		}
	}
}

// weak returns an RSA key that crypto/rsa would not make.
func weak(t testing.TB, bits int) crypto.Signer {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	var k *rsa.PrivateKey
	fips140.WithoutEnforcement(func() {
		var err error
		k, err = rsa.GenerateKey(rand.Reader, bits)
		must.Succeed(t, err)
	})
	return k
}

func pemBytes(text []byte) []byte {
	b, _ := pem.Decode(text)
	return b.Bytes
}

// TestIssuerExpires issues certificates near the end of the CA's own: none is valid longer, and at last there is none.
func TestIssuerExpires(t *testing.T) {
	b, err := pki.NewSelfSigned("cluster.local", time.Hour, start)
	must.Succeed(t, err)
	now := start
	c := ca.New(ca.Options{TTL: 24 * time.Hour, MaxTTL: 24 * time.Hour, Now: func() time.Time { return now }})
	csr := request(t, newKey(t), &x509.CertificateRequest{})
	if _, err := issue(c, web, csr, 0); !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("without a bundle: %v", err)
	}
	c.Use(b)
	for _, at := range []time.Duration{0, 30 * time.Minute, 50 * time.Minute} {
		now = start.Add(at)
		i, err := issue(c, web, csr, 0)
		must.Succeed(t, err)
		if l := leaf(t, i); !l.NotAfter.Equal(start.Add(time.Hour)) || !i.NotAfter.Equal(l.NotAfter) {
			t.Errorf("at %s: valid to %v", at, l.NotAfter)
		}
	}
	for _, at := range []time.Duration{50*time.Minute + time.Second, time.Hour, 10 * time.Hour} {
		now = start.Add(at)
		if _, err := issue(c, web, csr, 0); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

// TestEveryCertificateKeepsTheProfile issues certificates of random requests to random identities.
func TestEveryCertificateKeepsTheProfile(t *testing.T) {
	c, b := newCA(t, 10*365*24*time.Hour)
	key := newKey(t)
	pool := x509.NewCertPool()
	pool.AddCert(b.Roots[0])
	serials := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		part := rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,20}`)
		host := rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,10}(\.[a-z0-9]{1,5})?`)
		id := identity.ID{TrustDomain: host.Draw(rt, "trust domain"),
			Namespace: part.Draw(rt, "namespace"), ServiceAccount: part.Draw(rt, "account")}
		r := &x509.CertificateRequest{DNSNames: rapid.SliceOfN(part, 0, 3).Draw(rt, "dns")}
		for _, p := range rapid.SliceOfN(host, 0, 3).Draw(rt, "uris") {
			r.URIs = append(r.URIs, &url.URL{Scheme: "spiffe", Host: p, Path: "/ns/x/sa/y"})
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
		if err != nil {
			rt.Skip(err)
		}
		ttl := time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(rt, "ttl")/int64(time.Second)+1) * time.Second
		i, err := issue(c, id, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), min(ttl, 24*time.Hour))
		must.Succeed(rt, err)
		l := leaf(t, i)
		if len(l.URIs) != 1 || l.URIs[0].String() != id.String() || len(l.DNSNames) > 0 ||
			l.NotAfter.Sub(start) > 24*time.Hour || serials[l.SerialNumber.String()] {
			rt.Fatalf("%v %v %v", l.URIs, l.DNSNames, l.NotAfter)
		}
		serials[l.SerialNumber.String()] = true
		if _, err := l.Verify(
			x509.VerifyOptions{Roots: pool, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			rt.Fatal(err)
		}
	})
}

// FuzzIssue asks with any bytes for a request.
func FuzzIssue(f *testing.F) {
	c, _ := newCA(f, 10*365*24*time.Hour)
	f.Add(request(f, newKey(f), &x509.CertificateRequest{DNSNames: []string{"a.example"}}))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, csr []byte) {
		i, err := issue(c, web, csr, 0)
		if err != nil {
			return
		}
		if l := leaf(t, i); len(l.URIs) != 1 || l.URIs[0].String() != web.String() ||
			len(l.DNSNames)+len(l.EmailAddresses)+len(l.IPAddresses) > 0 || l.IsCA {
			t.Errorf("a certificate of %v, %v", l.URIs, l.DNSNames)
		}
	})
}

func BenchmarkIssue(b *testing.B) {
	c, _ := newCA(b, 10*365*24*time.Hour)
	csr := request(b, newKey(b), &x509.CertificateRequest{})
	for b.Loop() {
		if _, err := issue(c, web, csr, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// TestServerNames: a server's certificate is for its DNS names and addresses, and for nothing else.
func TestServerNames(t *testing.T) {
	c, _ := newCA(t, 240*time.Hour)
	names := []string{"istiod.istio-system.svc", "10.0.0.1", "::1"}
	issued, err := c.IssueServer(c.Bundle(), names, newKey(t).Public(), time.Hour)
	must.Succeed(t, err)
	l := leaf(t, issued)
	for _, n := range names {
		if err := l.VerifyHostname(n); err != nil {
			t.Error(err)
		}
	}
	if l.VerifyHostname("10.0.0.2") == nil || len(l.DNSNames) != 1 || len(l.IPAddresses) != 2 || len(l.URIs) > 0 {
		t.Errorf("it is for %v, %v, %v", l.DNSNames, l.IPAddresses, l.URIs)
	}
	if _, err := c.IssueServer(c.Bundle(), nil, newKey(t).Public(), time.Hour); err == nil {
		t.Error("a certificate without a name was issued")
	}
}
