package authority

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
)

// serving is the server's own certificate, and the roots of its callers'.
type serving struct {
	certificate tls.Certificate
	callers     *x509.CertPool
	names       []string
	renewal     time.Time
}

// servingTTL is how long the server's own certificate is valid.
const servingTTL = 24 * time.Hour

// issueOwn gives the server a new certificate.
func (a *Authority) issueOwn(now time.Time) error {
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

// renew gives the server a new certificate in time, and when its names change.
func (a *Authority) renew(now time.Time) error {
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
