package authority_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// shownTo returns the certificate that a client sees which verifies it by some roots, given as PEM, so long after now.
func shownTo(t *testing.T, h *authority.Held, roots []byte, ahead time.Duration) (*x509.Certificate, error) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	near, far := net.Pipe()
	defer near.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer far.Close()
		s := tls.Server(far, h.TLS(&tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}))
		_ = s.HandshakeContext(t.Context())
	}()
	client := tls.Client(near, &tls.Config{RootCAs: pool, ServerName: name, Time: func() time.Time { return time.Now().Add(ahead) }})
	err := client.HandshakeContext(t.Context())
	near.Close()
	<-ended
	if err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

// TestHeld shows a certificate by a new root only when all callers trust that, and tells them of both roots meanwhile.
// A root that is needed no more is told for a while longer.
func TestHeld(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		one, two := newRoot(t), newRoot(t)
		plug(t, dir, one)
		a, _ := newAuthority(t, func(o *authority.Options) { o.Folder, o.MultiRoot = dir, true })
		h := a.Hold()
		if h.Roots() != nil {
			t.Error("there is no certificate yet")
		}
		if _, err := shownTo(t, h, nil, 0); err == nil {
			t.Error("a handshake without a certificate")
		}
		must.Succeed(t, a.Load(t.Context()))
		run(t, a)
		first := pki.EncodeCertificates(one.Certificate)
		trusted := first // by the callers
		observe := func(bundle []byte) {
			t.Helper()
			trusted = bundle
			h.Observed("one", [][]byte{bundle, bundle})
		}
		shows := func(what string, want *pki.Bundle, roots int) {
			t.Helper()
			c, err := shownTo(t, h, trusted, 0)
			if err != nil {
				t.Errorf("%s: %v", what, err)
			} else if err := c.CheckSignatureFrom(want.Certificate); err != nil {
				t.Errorf("%s: another certificate: %v", what, err)
			}
			if n := strings.Count(string(h.Roots()), "BEGIN CERTIFICATE"); n != roots {
				t.Errorf("%s: %d roots, want %d", what, n, roots)
			}
		}
		observe(h.Roots())
		shows("at first", one, 1)

		plug(t, dir, two)
		pass(5 * time.Second)
		shows("nobody trusts the new root", one, 2)
		h.Observed("one", [][]byte{h.Roots(), first})
		time.Sleep(5 * time.Second)
		shows("one caller does not", one, 2)
		h.Observed("one", [][]byte{h.Roots(), []byte("x")})
		time.Sleep(5 * time.Second)
		shows("one caller has something else", one, 2)
		observe(h.Roots())
		shows("it was told just now", one, 2)
		time.Sleep(5 * time.Second)
		shows("all do", two, 2)
		time.Sleep(5 * time.Minute)
		shows("another replica may show the old one", two, 2)
		time.Sleep(10 * time.Minute)
		shows("nobody does", two, 1)
	})
}

// TestHeldUntilItExpires: a certificate that expires goes, trusted or not. What another server told is told on.
func TestHeldUntilItExpires(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		one, two, earlier := newRoot(t), newRoot(t), newRoot(t)
		plug(t, dir, one)
		var ahead atomic.Int64
		a, _ := newAuthority(t, func(o *authority.Options) {
			now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			o.Folder, o.MultiRoot, o.CA = dir, true, ca.New(ca.Options{TTL: time.Hour, MaxTTL: time.Hour, Now: now})
		})
		must.Succeed(t, a.Load(t.Context()))
		run(t, a)
		h := a.Hold()
		first, second := pki.EncodeCertificates(one.Certificate), pki.EncodeCertificates(two.Certificate)
		h.Observed("one", [][]byte{pki.EncodeCertificates(earlier.Certificate)})
		if n := strings.Count(string(h.Roots()), "BEGIN CERTIFICATE"); n != 2 {
			t.Errorf("what an earlier server told is lost: %d roots", n)
		}
		shown := func(what string, roots []byte) *x509.Certificate {
			t.Helper()
			pass(5 * time.Second)
			c, err := shownTo(t, h, roots, time.Duration(ahead.Load()))
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			return c
		}
		shown("there is no other certificate to show", first)
		h.Observed("one", [][]byte{first})
		before := shown("it is trusted", first)
		ahead.Store(int64(18 * time.Hour))
		if c := shown("it is renewed by the same root", first); c.Equal(before) {
			t.Error("it was not renewed")
		}
		plug(t, dir, two)
		ahead.Store(int64(41 * time.Hour))
		shown("it is still valid", first)
		ahead.Store(int64(43 * time.Hour))
		shown("it has expired", second)
	})
}
