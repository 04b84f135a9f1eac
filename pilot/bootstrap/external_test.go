package bootstrap

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestCertifiedByOthers: with ENABLE_CA_SERVER=false and a certificate of the server's in files, the secure port and
// the webhooks are served. Who has a certificate by the same roots is known, also when they change, and nobody gets one
// here. Without such files neither port listens.
func TestCertifiedByOthers(t *testing.T) {
	o := certificateOptions(t)
	o.Certificates.Off, o.Certificates.StateDir, o.HTTPS = true, "", "127.0.0.1:0"
	s, err := New(o)
	must.Succeed(t, err)
	if s.secure != nil {
		t.Error("there is a secure port without a certificate")
	}
	dir := t.TempDir()
	f := authority.Files{Certificate: filepath.Join(dir, "tls.crt"),
		Key: filepath.Join(dir, "tls.key"), Roots: filepath.Join(dir, "root-cert.pem")}
	write := func(name string, text []byte) {
		must.Succeed(t, os.WriteFile(name, text, 0o600))
	}
	certify := func(b *pki.Bundle, roots ...*x509.Certificate) {
		key, err := pki.GenerateKey()
		must.Succeed(t, err)
		der, _, err := b.Sign(pki.Leaf{Names: []string{"istiod.istio-system.svc"}, Key: key.Public(), TTL: time.Hour}, time.Now())
		must.Succeed(t, err)
		leaf, err := x509.ParseCertificate(der)
		must.Succeed(t, err)
		text, err := pki.EncodeKey(key)
		must.Succeed(t, err)
		write(f.Roots, pki.EncodeCertificates(roots...))
		write(f.Certificate, pki.EncodeCertificates(leaf))
		write(f.Key, text)
	}
	first, second := selfSigned(t), selfSigned(t)
	certify(first, first.Roots[0])
	o.Certificates.Serving = f
	if s, err = New(o); err != nil {
		t.Fatal(err)
	}
	run(t, s)
	eventually(t, "the server is ready", s.ready.Load)
	if s.Addresses().HTTPS == "" {
		t.Error("the webhooks are not served")
	}
	const node = "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"
	pool := x509.NewCertPool()
	pool.AddCert(first.Roots[0])
	pool.AddCert(second.Roots[0])
	opens := func(b *pki.Bundle) error {
		_, err := streamAs(t.Context(), t,
			dialSecure(t, s.Addresses().SecureGRPC, pool, leafOf(t, b, "spiffe://cluster.local/ns/a/sa/web")), node)
		return err
	}
	if err := opens(first); err != nil {
		t.Errorf("by the issuer of the server's certificate: %v", err)
	}
	if err := opens(second); err == nil {
		t.Error("anybody's certificate is good")
	}
	if _, err := streamAs(t.Context(), t, dialSecure(t, s.Addresses().SecureGRPC, pool), node); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a certificate: %v", err)
	}
	if _, err := issued(t.Context(), t, dialSecure(t, s.Addresses().SecureGRPC, pool,
		leafOf(t, first, "spiffe://cluster.local/ns/a/sa/web"))); status.Code(err) != codes.Unimplemented {
		t.Errorf("for a certificate: %v", err)
	}
	certify(second, first.Roots[0], second.Roots[0])
	eventually(t, "the next issuer counts", func() bool { return opens(second) == nil })
	if err := opens(first); err != nil {
		t.Errorf("by the issuer before: %v", err)
	}
}
