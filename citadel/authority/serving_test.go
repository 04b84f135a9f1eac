package authority

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestTimesOfDay has the server's own certificate renewed by the time of day: a comparison of two times that both have
// a reading of the monotonic clock would not notice that the clock was set, or that the machine slept.
func TestTimesOfDay(t *testing.T) {
	b, err := pki.NewSelfSigned("cluster.local", time.Hour, time.Now())
	must.Succeed(t, err)
	a := &Authority{
		o: Options{CA: ca.New(ca.Options{TTL: time.Hour, MaxTTL: time.Hour}), Names: func() []string { return []string{"localhost"} }},
	}
	s, err := a.newServing(t.Context(), b, time.Now())
	must.Succeed(t, err)
	for name, at := range map[string]time.Time{"issued": s.issued, "renewal": s.renewal} {
		if text := at.String(); strings.Contains(text, "m=") {
			t.Errorf("%s is %s, which has a reading of the monotonic clock", name, text)
		}
	}
}

// TestServingIsVerified: a certificate in files that the roots beside it do not verify is not taken at the start, and
// later the last one stays with its roots.
func TestServingIsVerified(t *testing.T) {
	now, dir := time.Now(), t.TempDir()
	files := Files{Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), Roots: filepath.Join(dir, "ca.crt")}
	newCA := func() *pki.Bundle {
		b, err := pki.NewSelfSigned("cluster.local", time.Hour, now)
		must.Succeed(t, err)
		return b
	}
	certify := func(by *pki.Bundle) {
		key, err := pki.GenerateKey()
		must.Succeed(t, err)
		der, _, err := by.Sign(pki.Leaf{Names: []string{"istiod.istio-system.svc"}, Key: key.Public(), TTL: time.Hour}, now)
		must.Succeed(t, err)
		text, err := pki.EncodeKey(key)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(files.Certificate, pki.EncodeCertificate(der), 0o600))
		must.Succeed(t, os.WriteFile(files.Key, text, 0o600))
	}
	tell := func(roots ...*x509.Certificate) {
		must.Succeed(t, os.WriteFile(files.Roots, pki.EncodeCertificates(roots...), 0o600))
	}
	one, other := newCA(), newCA()
	a := &Authority{o: Options{CA: ca.New(ca.Options{}), Files: files}, changed: make(chan struct{}, 1)}
	certify(one)
	tell(other.Roots[0])
	if s, err := a.newServing(t.Context(), nil, now); s != nil || err == nil || !strings.Contains(err.Error(), "tls.crt is not verified by") {
		t.Fatalf("at the start: %v %v", s, err)
	}
	tell(one.Roots[0])
	must.Succeed(t, a.renew(t.Context(), now))
	first := a.serving.Load()
	certify(other)
	if err := a.renew(t.Context(), now); err == nil || !strings.Contains(err.Error(), "tls.crt is not verified by") {
		t.Errorf("while it runs: %v", err)
	}
	if s := a.serving.Load(); !s.certificate.Leaf.Equal(first.certificate.Leaf) || string(s.roots) != string(first.roots) {
		t.Error("the last certificate does not stay with its roots")
	}
	tell(one.Roots[0], other.Roots[0])
	must.Succeed(t, a.renew(t.Context(), now))
	if a.serving.Load().certificate.Leaf.Equal(first.certificate.Leaf) {
		t.Error("the certificate is not taken when its roots are told")
	}
	if err := a.renew(t.Context(), now.Add(-2*time.Hour)); err != nil {
		t.Errorf("with a clock that is late: %v", err)
	}
}
