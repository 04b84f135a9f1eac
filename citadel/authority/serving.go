package authority

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
)

// Files are the paths of a certificate of the server's that others issue, its key, and the roots by which callers
// verify it; without roots they are the CA's.
type Files struct{ Certificate, Key, Roots string }

// serving is the server's own certificate, and the roots of its callers'.
type serving struct {
	certificate tls.Certificate
	roots       []byte // of the certificate, as PEM; nil: they are the CA's
	callers     *x509.CertPool
	names       []string
	renewal     time.Time
}

// servingTTL is how long the server's own certificate is valid.
const servingTTL = 24 * time.Hour

// issueOwn gives the server a new certificate.
func (a *Authority) issueOwn(now time.Time) error {
	if a.o.Files != (Files{}) {
		return a.readOwn(now)
	}
	key, err := pki.GenerateKey()
	if err != nil {
		return err
	}
	names := a.o.Names()
	own, err := a.o.CA.IssueServer(names, key.Public(), servingTTL)
	if err != nil {
		return err
	}
	s := &serving{certificate: tls.Certificate{PrivateKey: key}, callers: x509.NewCertPool(), names: names, renewal: rotation.Renewal(now, own.NotAfter, 0)}
	for _, text := range own.Chain[:len(own.Chain)-1] {
		list, err := pki.ParseCertificates(text)
		if err != nil {
			return err
		}
		for _, c := range list {
			s.certificate.Certificate = append(s.certificate.Certificate, c.Raw)
		}
	}
	for _, c := range a.o.CA.Bundle().Roots {
		s.callers.AddCert(c)
	}
	a.serving.Store(s)
	return nil
}

// readOwn reads the server's certificate from its files. One that does not belong to its key, or has expired, does not
// replace the last good one.
func (a *Authority) readOwn(now time.Time) error {
	f := a.o.Files
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return fmt.Errorf("the server's own certificate: %w", err)
	}
	if now.After(pair.Leaf.NotAfter) {
		return fmt.Errorf("the server's own certificate in %s expired at %s", f.Certificate, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	s := &serving{certificate: pair, callers: x509.NewCertPool()}
	if f.Roots != "" {
		if s.roots, err = os.ReadFile(f.Roots); err != nil {
			return fmt.Errorf("the roots of the server's own certificate: %w", err)
		}
		if list, err := pki.ParseCertificates(s.roots); err != nil || len(list) == 0 {
			return fmt.Errorf("the roots of the server's own certificate in %s: %w", f.Roots, errors.Join(err, errors.New("they are no certificates")))
		}
	}
	for _, c := range a.o.CA.Bundle().Roots {
		s.callers.AddCert(c)
	}
	last := a.serving.Swap(s)
	if last == nil || !bytes.Equal(last.roots, s.roots) {
		a.tell()
	}
	return nil
}

// ServerRoots returns the certificates by which callers verify the server's own, as PEM; nil before the first.
func (a *Authority) ServerRoots() []byte {
	if s := a.serving.Load(); s != nil && s.roots != nil {
		return s.roots
	}
	return a.Roots()
}

// renew gives the server a new certificate in time, and when its names change. One in files is read each time.
func (a *Authority) renew(now time.Time) error {
	if a.o.Files != (Files{}) {
		return a.readOwn(now)
	}
	if s := a.serving.Load(); s != nil && now.Before(s.renewal) && slices.Equal(s.names, a.o.Names()) {
		return nil
	}
	return a.issueOwn(now)
}

// TLS returns a configuration that shows the server's certificate of the moment of each handshake, and verifies the
// certificates of callers that show one.
func (a *Authority) TLS(base *tls.Config) *tls.Config {
	c := base.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s := a.serving.Load()
		if s == nil {
			return nil, errors.New("there is no certificate yet")
		}
		each := base.Clone()
		each.Certificates, each.ClientCAs, each.ClientAuth = []tls.Certificate{s.certificate}, s.callers, tls.VerifyClientCertIfGiven
		return each, nil
	}
	return c
}
