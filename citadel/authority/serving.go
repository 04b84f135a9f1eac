package authority

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
)

// Files are the paths of a server certificate that another system issued, of its key, and of the roots that verify it.
// Roots is optional; by default the CA's roots verify it.
type Files struct{ Certificate, Key, Roots string }

// serving is the server's own certificate, and the roots that its callers are verified by.
type serving struct {
	certificate tls.Certificate
	roots       []byte              // roots of certificate, as PEM; nil if they are the CA's
	vouching    []*x509.Certificate // parsed roots, if they also verify client certificates
	anchors     []*x509.Certificate // roots that client certificates are verified by
	callers     *x509.CertPool
	names       []string
	issued      time.Time // zero if another system issued the certificate
	renewal     time.Time
}

// servingTTL is how long the server's own certificate is valid.
const servingTTL = 24 * time.Hour

// signBackoff is the wait after a signer has failed.
const signBackoff = 15 * time.Second

// withAnchors returns a copy of the certificate that verifies callers by anchors.
func (s serving) withAnchors(anchors []*x509.Certificate) *serving {
	s.anchors, s.callers = anchors, x509.NewCertPool()
	for _, c := range anchors {
		s.callers.AddCert(c)
	}
	return &s
}

// newServing returns a new certificate of the server that trusts callers of a bundle, which may be nil. If the files of
// a certificate are not usable, the result has the last certificate, with the error; it is nil if there is no last one.
func (a *Authority) newServing(ctx context.Context, b *pki.Bundle, now time.Time) (*serving, error) {
	var s *serving
	var err error
	if a.o.Files == (Files{}) {
		s, err = a.issueOwn(ctx, b, now)
	} else if s, err = a.readOwn(now); err != nil {
		if last := a.serving.Load(); last != nil {
			s = &serving{certificate: last.certificate, roots: last.roots, vouching: last.vouching}
		}
	}
	if s == nil {
		return nil, err
	}
	return s.withAnchors(append(a.anchors(b), s.vouching...)), err
}

// issueOwn issues a certificate of the server from a bundle, unless Options.Sign signs it.
func (a *Authority) issueOwn(ctx context.Context, b *pki.Bundle, now time.Time) (*serving, error) {
	key, err := pki.GenerateKey()
	if err != nil {
		return nil, err
	}
	names := a.o.Names()
	var own *ca.Issued
	if a.o.Sign != nil {
		own, err = a.o.Sign(ctx, names, key, servingTTL)
	} else {
		own, err = a.o.CA.IssueServer(b, names, key.Public(), servingTTL)
	}
	if err != nil {
		return nil, err
	}
	now = now.Round(0) // callers compare certificates with the wall clock, which may be set, and not with elapsed time
	s := &serving{certificate: tls.Certificate{PrivateKey: key}, names: names, issued: now, renewal: rotation.Renewal(now, own.NotAfter, 0)}
	if a.o.Sign != nil {
		s.roots = own.Chain[len(own.Chain)-1]
	}
	if s.certificate.Certificate, err = own.Shown(); err != nil {
		return nil, err
	}
	return s, nil
}

// readOwn reads the server's certificate from Files. It is an error if the certificate does not match its key, has
// expired, or is not verified by the roots beside it, which callers such as the API server verify it by.
func (a *Authority) readOwn(now time.Time) (*serving, error) {
	f := a.o.Files
	pair, err := safe.KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, err
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s expired at %s", f.Certificate, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	s := &serving{certificate: pair}
	if f.Roots == "" {
		return s, nil
	}
	if s.roots, err = safe.ReadFile(f.Roots); err != nil {
		return nil, fmt.Errorf("its roots: %w", err)
	}
	list, err := pki.ParseCertificates(s.roots)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its roots in %s: %w", f.Roots, err)
	case len(list) == 0:
		return nil, fmt.Errorf("its roots: %s has no certificates", f.Roots)
	}
	if err := verified(pair, list, now); err != nil {
		return nil, fmt.Errorf("%s is not verified by %s, so no caller would accept it: %w", f.Certificate, f.Roots, err)
	}
	if a.o.FilesVouch {
		s.vouching = list
	}
	return s, nil
}

// verified returns nil if roots verify the certificate of a server. A certificate that is not valid yet is checked at
// the time at which it becomes valid, because clocks differ.
func verified(pair tls.Certificate, roots []*x509.Certificate, now time.Time) error {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
	for _, c := range roots {
		o.Roots.AddCert(c)
	}
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		o.Intermediates.AddCert(c)
	}
	if now.Before(pair.Leaf.NotBefore) {
		o.CurrentTime = pair.Leaf.NotBefore
	}
	_, err := pair.Leaf.Verify(o)
	return err
}

// serve makes handshakes show a certificate from now on.
func (a *Authority) serve(s *serving) {
	if last := a.serving.Swap(s); last == nil || !bytes.Equal(last.roots, s.roots) || !same(last.anchors, s.anchors) {
		a.notifyRoots()
	}
}

func same(a, b []*x509.Certificate) bool { return slices.EqualFunc(a, b, (*x509.Certificate).Equal) }

// ServerRoots returns the roots that callers verify the server's certificate by, as PEM; nil before the first
// certificate.
func (a *Authority) ServerRoots() []byte {
	if s := a.serving.Load(); s != nil && s.roots != nil {
		return s.roots
	}
	return a.Roots()
}

// VouchingRoots returns the roots in Files, if they also verify client certificates.
func (a *Authority) VouchingRoots() []*x509.Certificate {
	if s := a.serving.Load(); s != nil {
		return s.vouching
	}
	return nil
}

// renew replaces the server's certificate when it is due, when its names change, and when the clock was set back so
// that it is not valid yet. A certificate in Files is read each time. It also follows changes of the roots of callers.
func (a *Authority) renew(ctx context.Context, now time.Time) error {
	b := a.o.CA.Bundle()
	if s := a.serving.Load(); a.o.Files == (Files{}) && s != nil && now.Before(s.renewal) &&
		now.After(s.issued.Add(-pki.Skew)) && slices.Equal(s.names, a.o.Names()) {
		if anchors := a.anchors(b); !same(s.anchors, anchors) {
			a.serve(s.withAnchors(anchors))
		}
		return nil
	}
	if a.o.Sign != nil && now.Before(a.retry) {
		return a.unsigned
	}
	s, err := a.newServing(ctx, b, now)
	if s != nil {
		a.serve(s)
	}
	if a.unsigned = err; err != nil {
		a.retry = now.Add(signBackoff)
	}
	return err
}

// errNoCertificate is the error of a handshake before there is a certificate.
var errNoCertificate = errors.New("there is no certificate yet")

// TLS returns a server configuration. A handshake shows the certificate that is in use at that moment, and verifies the
// client's certificate if it presents one.
func (a *Authority) TLS(base *tls.Config) *tls.Config {
	c := base.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s := a.serving.Load()
		if s == nil {
			return nil, errNoCertificate
		}
		each := base.Clone()
		each.Certificates, each.ClientCAs, each.ClientAuth = []tls.Certificate{s.certificate}, s.callers, tls.VerifyClientCertIfGiven
		return each, nil
	}
	return c
}
