package ca_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestSpiffeAcceptsCertificates: the reference implementation of SPIFFE accepts what is issued, for keys of both kinds,
// as an X.509-SVID of the caller, and does not if another root is trusted.
func TestSpiffeAcceptsCertificates(t *testing.T) {
	c, b := newCA(t, 240*time.Hour)
	_, other := newCA(t, 240*time.Hour)
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	for _, key := range []crypto.Signer{newKey(t), own} {
		i, err := issue(c, web, request(t, key, &x509.CertificateRequest{}), 0)
		must.Succeed(t, err)
		chain, err := pki.ParseCertificates(i.Chain[0])
		must.Succeed(t, err)
		verify := func(roots []*x509.Certificate) (spiffeid.ID, error) {
			bundle := x509bundle.FromX509Authorities(spiffeid.RequireTrustDomainFromString("cluster.local"), roots)
			id, _, err := x509svid.Verify(chain, bundle, x509svid.WithTime(start))
			return id, err
		}
		if id, err := verify(b.Roots); err != nil || id.String() != web.String() {
			t.Errorf("%T: %s, %v", key, id, err)
		}
		if _, err := verify(other.Roots); err == nil {
			t.Errorf("%T: another CA's root is enough", key)
		}
	}
}
