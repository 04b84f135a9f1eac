package ra_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/ra"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	web    = "spiffe://cluster.local/ns/a/sa/web"
	signer = "issuers.example/mesh"
)

var (
	webID    = identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
	requests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"}
)

// issuer signs requests of an API server in memory, as a signer of Kubernetes would.
type issuer struct {
	key    crypto.Signer
	root   *x509.Certificate
	change func(*x509.Certificate) // of what it signs
	answer func(o *unstructured.Unstructured) bool
	signer string // that was asked last
	usages []string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must.Succeed(t, err)
	root, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return &issuer{key: key, root: root, change: func(*x509.Certificate) {}, answer: func(*unstructured.Unstructured) bool { return false }}
}

// client returns a client of an API server whose requests the issuer signs once they are approved.
func (i *issuer) client(t *testing.T) *fake.FakeDynamicClient {
	t.Helper()
	c := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{requests: "CertificateSigningRequestList"})
	c.PrependReactor("update", requests.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		o := a.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured)
		if a.GetSubresource() != "approval" {
			t.Errorf("%s is written", a.GetSubresource())
		}
		if !i.answer(o) {
			i.sign(t, o)
		}
		return true, o, c.Tracker().Update(requests, o, "")
	})
	return c
}

func (i *issuer) sign(t *testing.T, o *unstructured.Unstructured) {
	text, _, _ := unstructured.NestedString(o.Object, "spec", "request")
	i.signer, _, _ = unstructured.NestedString(o.Object, "spec", "signerName")
	i.usages, _, _ = unstructured.NestedStringSlice(o.Object, "spec", "usages")
	seconds, _, _ := unstructured.NestedInt64(o.Object, "spec", "expirationSeconds")
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Error(err)
	}
	b, _ := pem.Decode(raw)
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		t.Error(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: csr.Subject, URIs: csr.URIs, DNSNames: csr.DNSNames, PublicKey: csr.PublicKey,
		NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(time.Duration(seconds) * time.Second), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	i.change(leaf)
	der, err := x509.CreateCertificate(rand.Reader, leaf, i.root, leaf.PublicKey, i.key)
	if err != nil {
		t.Error(err)
	}
	_ = unstructured.SetNestedField(o.Object, base64.StdEncoding.EncodeToString(pki.EncodeCertificate(der)), "status", "certificate")
}

// condition has requests get a condition in the place of a certificate.
func condition(kind string) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"type": kind, "status": "True", "message": "no"}}, "status", "conditions")
		return true
	}
}

func newAuthority(c *fake.FakeDynamicClient, roots ...*x509.Certificate) *ra.Authority {
	return loggingAuthority(io.Discard, c, roots...)
}

func loggingAuthority(log io.Writer, c *fake.FakeDynamicClient, roots ...*x509.Certificate) *ra.Authority {
	return ra.New(ra.Options{
		Client: c, Signer: signer, Domain: "issuers.example", ServerSigner: "another.example/own",
		TTL: time.Hour, MaxTTL: 24 * time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Roots: func(string) []*x509.Certificate { return roots },
	})
}

func request(t *testing.T, r x509.CertificateRequest) []byte {
	t.Helper()
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &r, key)
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func uris(t *testing.T, list ...string) []*url.URL {
	t.Helper()
	var out []*url.URL
	for _, text := range list {
		u, err := url.Parse(text)
		must.Succeed(t, err)
		out = append(out, u)
	}
	return out
}

// left returns how many requests are left behind.
func left(t *testing.T, c *fake.FakeDynamicClient) int {
	t.Helper()
	list, err := c.Resource(requests).List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	return len(list.Items)
}

// TestSigners: a caller names a signer of the domain that the operator gave, or none.
func TestSigners(t *testing.T) {
	for _, c := range []struct{ byDefault, domain, named, want string }{
		{signer, "issuers.example", "", signer},
		{signer, "issuers.example", "other", "issuers.example/other"},
		{"", "issuers.example", "other", "issuers.example/other"},
		{"", "issuers.example", "", ""},
		{signer, "", "other", ""},
		{signer, "issuers.example", "a/b", ""},
		{signer, "issuers.example", "../b", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			i := newIssuer(t)
			client := i.client(t)
			authority := ra.New(ra.Options{
				Client: client, Signer: c.byDefault, Domain: c.domain, TTL: time.Hour, MaxTTL: 24 * time.Hour,
				Logger: slog.New(slog.DiscardHandler),
				Roots:  func(string) []*x509.Certificate { return []*x509.Certificate{i.root} },
			})
			_, err := authority.Issue(t.Context(), ca.Request{ID: webID, CSR: request(t, x509.CertificateRequest{URIs: uris(t, web)}),
				Signer: c.named})
			if i.signer != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%+v: %q is asked, %v", c, i.signer, err)
			}
		})
	}
}

// TestIssue has certificates signed, and returns only the certificate of the request. No request is left behind, and
// the log says why there is no certificate.
func TestIssue(t *testing.T) {
	another, err := pki.GenerateKey()
	must.Succeed(t, err)
	for what, c := range map[string]struct {
		change func(*x509.Certificate)
		answer func(*unstructured.Unstructured) bool
		want   error
		logged string // why; by default that a certificate was not verified
	}{
		"good":         {},
		"another name": {change: func(c *x509.Certificate) { c.URIs = uris(t, "spiffe://cluster.local/ns/a/sa/db") }, want: ca.ErrInternal},
		"two names": {change: func(c *x509.Certificate) { c.URIs = uris(t, web, "spiffe://cluster.local/ns/a/sa/db") },
			want: ca.ErrInternal},
		"a DNS name":        {change: func(c *x509.Certificate) { c.DNSNames = []string{"bank.example"} }, want: ca.ErrInternal},
		"no name":           {change: func(c *x509.Certificate) { c.URIs = nil }, want: ca.ErrInternal},
		"a CA":              {change: func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }, want: ca.ErrInternal},
		"may sign":          {change: func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, want: ca.ErrInternal},
		"for servers alone": {change: func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, want: ca.ErrInternal},
		"another key":       {change: func(c *x509.Certificate) { c.PublicKey = another.Public() }, want: ca.ErrInternal},
		"for too long":      {change: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(25 * time.Hour) }, want: ca.ErrInternal},
		"expired":           {change: func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }, want: ca.ErrInternal},
		"denied":            {answer: condition("Denied"), want: ca.ErrInternal, logged: "the certificate request was Denied: no"},
		"failed":            {answer: condition("Failed"), want: ca.ErrInternal, logged: "the certificate request was Failed: no"},
		"nobody signs": {answer: func(*unstructured.Unstructured) bool { return true }, want: ca.ErrUnavailable,
			logged: "has not signed in time"},
		"no PEM": {answer: garbage, want: ca.ErrInternal},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer(t)
				if c.change != nil {
					i.change = c.change
				}
				if c.answer != nil {
					i.answer = c.answer
				}
				client := i.client(t)
				var log bytes.Buffer
				out, err := loggingAuthority(&log, client, i.root).Issue(t.Context(),
					ca.Request{ID: webID, CSR: request(t, x509.CertificateRequest{URIs: uris(t, web)})})
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("%v: want %v", err, c.want)
				}
				if want := cmp.Or(c.logged, "failed to verify"); strings.Contains(log.String(), want) != (c.want != nil) {
					t.Errorf("the log says %q, and not %q", log.String(), want)
				}
				if c.want == nil && err == nil {
					if len(out.Chain) != 2 || time.Until(out.NotAfter) > time.Hour || i.signer != signer || len(i.usages) != 4 {
						t.Errorf("%d certificates until %v of %s for %v", len(out.Chain), out.NotAfter, i.signer, i.usages)
					}
				}
				if n := left(t, client); n != 0 {
					t.Errorf("%d requests are left", n)
				}
			})
		})
	}
}

func garbage(o *unstructured.Unstructured) bool {
	_ = unstructured.SetNestedField(o.Object, base64.StdEncoding.EncodeToString([]byte("x")), "status", "certificate")
	return true
}

// TestRequests refuses what a signer must not see: it would certify what a request says.
func TestRequests(t *testing.T) {
	good := x509.CertificateRequest{URIs: uris(t, web)}
	for what, c := range map[string]struct {
		csr    x509.CertificateRequest
		ttl    time.Duration
		signer string
		asked  string // empty: nobody is
	}{
		"good":          {csr: good, asked: signer},
		"a signer":      {csr: good, signer: "another", asked: "issuers.example/another"},
		"another name":  {csr: x509.CertificateRequest{URIs: uris(t, "spiffe://cluster.local/ns/a/sa/db")}},
		"no name":       {csr: x509.CertificateRequest{}},
		"two names":     {csr: x509.CertificateRequest{URIs: uris(t, web, web)}},
		"a DNS name":    {csr: x509.CertificateRequest{URIs: uris(t, web), DNSNames: []string{"bank.example"}}},
		"a common name": {csr: x509.CertificateRequest{URIs: uris(t, web), Subject: pkix.Name{CommonName: "admin"}}},
		"a group":       {csr: x509.CertificateRequest{URIs: uris(t, web), Subject: pkix.Name{Organization: []string{"system:masters"}}}},
		"an extension": {csr: x509.CertificateRequest{
			URIs: uris(t, web), ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}},
		}},
		"too long":           {csr: good, ttl: 25 * time.Hour},
		"negative":           {csr: good, ttl: -1},
		"signer with a path": {csr: good, signer: "../kubernetes.io/kube-apiserver-client"},
		"signer of any":      {csr: good, signer: "*"},
	} {
		t.Run(what, func(t *testing.T) {
			i := newIssuer(t)
			client := i.client(t)
			_, err := newAuthority(client, i.root).Issue(t.Context(), ca.Request{ID: webID, CSR: request(t, c.csr), TTL: c.ttl, Signer: c.signer})
			if (err == nil) != (c.asked != "") || i.signer != c.asked || errors.Is(err, ca.ErrInternal) || errors.Is(err, ca.ErrUnavailable) {
				t.Errorf("%v; %q was asked", err, i.signer)
			}
		})
	}
	if _, err := newAuthority(newIssuer(t).client(t)).Issue(t.Context(),
		ca.Request{ID: webID, CSR: request(t, good)}); !errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("without roots: %v", err)
	}
	i := newIssuer(t)
	if _, err := newAuthority(i.client(t), newIssuer(t).root).Issue(t.Context(),
		ca.Request{ID: webID, CSR: request(t, good)}); !errors.Is(err, ca.ErrInternal) {
		t.Errorf("with another signer's roots: %v", err)
	}
}

// TestCallerLeaves deletes the request of a caller that does not wait for it.
func TestCallerLeaves(t *testing.T) {
	i := newIssuer(t)
	ctx, cancel := context.WithCancel(t.Context())
	i.answer = func(*unstructured.Unstructured) bool {
		cancel()
		return true
	}
	client := i.client(t)
	_, err := newAuthority(client, i.root).Issue(ctx, ca.Request{ID: webID, CSR: request(t, x509.CertificateRequest{URIs: uris(t, web)})})
	if err == nil || left(t, client) != 0 {
		t.Errorf("%v, %d left", err, left(t, client))
	}
}

// TestServer has the certificate of a server signed.
func TestServer(t *testing.T) {
	i := newIssuer(t)
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	names := []string{"istiod.istio-system.svc", "istiod-remote.istio-system.svc"}
	out, err := newAuthority(i.client(t), i.root).IssueServer(t.Context(), names, key, time.Hour)
	if err != nil || i.signer != "another.example/own" || len(out.Chain) != 2 {
		t.Errorf("%v, %s", err, i.signer)
	}
}
