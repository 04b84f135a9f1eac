package authority_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestClient: servers of one control plane verify each other, one by its name and the other by its identity, which is
// renewed in time, and when the roots change.
func TestClient(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	synctest.Test(t, func(t *testing.T) {
		a, issuer := running(t, func(o *authority.Options) {
			o.Store = &store.Kept{Store: store.Folder{Path: dir}, Lease: o.Lease}
		})
		id := identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "istiod"}
		c := a.Client(authority.ClientOptions{Issuer: issuer, Server: name, ID: func() identity.ID { return id }})
		shown := func() *x509.Certificate {
			t.Helper()
			config, err := c.TLS(t.Context())
			must.Succeed(t, err)
			near, far := net.Pipe()
			server := tls.Server(far, a.TLS(&tls.Config{MinVersion: tls.VersionTLS12}))
			done := make(chan error, 1)
			go func() { done <- server.HandshakeContext(t.Context()) }()
			must.Succeed(t, tls.Client(near, config).HandshakeContext(t.Context()))
			must.Succeed(t, <-done)
			defer func() { _, _ = near.Close(), far.Close() }()
			chains := server.ConnectionState().VerifiedChains
			if len(chains) == 0 || len(chains[0][0].URIs) != 1 || chains[0][0].URIs[0].String() != id.String() {
				t.Errorf("the server verifies %v", chains)
			}
			return server.ConnectionState().PeerCertificates[0]
		}
		first := shown()
		if !shown().Equal(first) {
			t.Error("another certificate at once")
		}
		c.Renew()
		second := shown()
		if second.Equal(first) {
			t.Error("the same certificate after Renew")
		}
		pass(20 * time.Hour)
		if shown().Equal(second) {
			t.Error("the same certificate shortly before it expires")
		}
		limited := a.Client(authority.ClientOptions{
			Issuer: issuer, Server: name, ID: func() identity.ID { return id }, Compliance: compliance.PQC,
		})
		config, err := limited.TLS(t.Context())
		if err != nil || config.MinVersion != tls.VersionTLS13 {
			t.Errorf("with a policy: %v, %+v", err, config)
		}
	})
}

// hesitant is a CA that issues a certificate, or fails, when it is told to.
type hesitant struct {
	authority.Issuer
	asked chan struct{}
	reply chan error
}

func (h hesitant) Issue(ctx context.Context, q ca.Request) (*ca.Issued, error) {
	h.asked <- struct{}{}
	if err := <-h.reply; err != nil {
		return nil, err
	}
	return h.Issuer.Issue(ctx, q)
}

// TestClientDoesNotWait: while the CA issues a certificate, no other caller waits for it that has a valid one, Renew
// returns, and a caller that waits can give up.
func TestClientDoesNotWait(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	synctest.Test(t, func(t *testing.T) {
		a, issuer := running(t, func(o *authority.Options) {
			o.Store = &store.Kept{Store: store.Folder{Path: dir}, Lease: o.Lease}
		})
		id := identity.ID{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "istiod"}
		h := hesitant{issuer, make(chan struct{}), make(chan error)}
		c := a.Client(authority.ClientOptions{Issuer: h, Server: name, ID: func() identity.ID { return id }})
		type result struct {
			shown string // the certificate
			err   error
		}
		shown := func(ctx context.Context) result {
			config, err := c.TLS(ctx)
			if err != nil {
				return result{err: err}
			}
			return result{shown: string(config.Certificates[0].Certificate[0])}
		}
		begin := func() chan result {
			got := make(chan result, 1)
			go func() { got <- shown(t.Context()) }()
			return got
		}
		issue := func(err error) result {
			t.Helper()
			got := begin()
			<-h.asked
			h.reply <- err
			return <-got
		}
		broken := errors.New("broken")
		if got := issue(broken); !errors.Is(got.err, broken) {
			t.Errorf("without a certificate: %v", got.err)
		}
		first := issue(nil)
		must.Succeed(t, first.err)

		pass(20 * time.Hour)
		renewing := begin()
		<-h.asked
		if got := shown(t.Context()); got != first {
			t.Errorf("while it is renewed: %v", got.err)
		}
		h.reply <- broken
		if got := <-renewing; got != first {
			t.Errorf("it could not be renewed: %v", got.err)
		}
		renewing = begin()
		<-h.asked
		c.Renew()
		waiting, cancel := context.WithCancel(t.Context())
		cancel()
		if got := shown(waiting); !errors.Is(got.err, context.Canceled) {
			t.Errorf("a caller that gives up: %v", got.err)
		}
		h.reply <- nil
		second := <-renewing
		if second.err != nil || second == first {
			t.Errorf("not renewed: %v", second.err)
		}
		if got := issue(nil); got.err != nil || got == second {
			t.Errorf("a certificate from before Renew is kept: %v", got.err)
		}
		pass(25 * time.Hour)
		if got := issue(broken); !errors.Is(got.err, broken) {
			t.Errorf("it has expired: %v", got.err)
		}
	})
}

// TestClientOfOthers: where others issue certificates the server's own is its identity, if it has a SPIFFE ID.
func TestClientOfOthers(t *testing.T) {
	b := newRoot(t)
	for uri, want := range map[string]string{"": "has no SPIFFE ID", "spiffe://cluster.local/ns/istio-system/sa/istiod": ""} {
		dir := t.TempDir()
		key, err := pki.GenerateKey()
		must.Succeed(t, err)
		l := pki.Leaf{Names: []string{name}, URI: uri, Key: key.Public(), TTL: time.Hour}
		if uri != "" {
			l.Names = nil
		}
		der, _, err := b.Sign(l, time.Now())
		must.Succeed(t, err)
		text, err := pki.EncodeKey(key)
		must.Succeed(t, err)
		f := authority.Files{Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Roots: filepath.Join(dir, "roots")}
		for path, content := range map[string][]byte{f.Certificate: pki.EncodeCertificate(der),
			f.Key: text, f.Roots: pki.EncodeCertificates(b.Roots...)} {
			must.Succeed(t, os.WriteFile(path, content, 0o600))
		}
		a, _ := newAuthority(t, func(o *authority.Options) { o.Elsewhere, o.Files, o.FilesVouch = true, f, true })
		c := a.Client(authority.ClientOptions{Server: name})
		if _, err := c.TLS(t.Context()); err == nil {
			t.Error("a configuration without a certificate")
		}
		must.Succeed(t, a.Load(t.Context()))
		if _, err := c.TLS(t.Context()); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", uri, err)
		}
	}
}
