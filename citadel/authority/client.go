package authority

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
)

// Issuer issues certificates of workloads.
type Issuer interface {
	Issue(ctx context.Context, q ca.Request) (*ca.Issued, error)
}

// ClientOptions of a Client.
type ClientOptions struct {
	// Issuer is nil if other systems issue certificates. Then the certificate in Files must name a workload too.
	Issuer Issuer
	// ID returns the identity of this server as a workload. Its trust domain is empty while the mesh is not known.
	ID func() identity.ID
	// Server is the name of the control plane in the certificates of its servers.
	Server string
	// Compliance limits the TLS of connections.
	Compliance compliance.Policy
}

// Client makes connections to other servers of this control plane as one of them. It has a certificate from the first
// connection on. Safe for concurrent use.
type Client struct {
	o       ClientOptions
	a       *Authority
	issuing chan struct{} // a semaphore: holds a value while a certificate is being issued

	mu   sync.Mutex
	held ownCertificate
}

// ownCertificate is the certificate of a Client.
type ownCertificate struct {
	certificate       *tls.Certificate // nil if the next connection needs a new one
	renewal, notAfter time.Time
	renewed           int // number of calls of Renew so far
}

// Client returns a Client of this server.
func (a *Authority) Client(o ClientOptions) *Client {
	return &Client{o: o, a: a, issuing: make(chan struct{}, 1)}
}

// Renew drops the certificate. A new one is issued for the next connection.
func (c *Client) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = ownCertificate{renewed: c.held.renewed + 1}
}

// TLS returns a client configuration that shows the server's identity as a workload, and accepts only servers of this
// control plane.
func (c *Client) TLS(ctx context.Context) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.a.ServerRoots()) {
		return nil, errNoCertificate
	}
	own, err := c.certificate(ctx)
	if err != nil {
		return nil, err
	}
	return c.o.Compliance.Limit(&tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.o.Server, RootCAs: roots, Certificates: []tls.Certificate{*own},
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			for _, chain := range s.VerifiedChains {
				if err = c.a.Revoked().Check(chain); err == nil {
					return nil
				}
			}
			return err
		},
	}), nil
}

// errNoIdentity is returned if the server's certificate names no workload and there is no issuer of another one.
var errNoIdentity = errors.New("others issue its certificate, which has no SPIFFE ID")

// certificate returns the certificate of the server's identity. While another caller renews it, or if renewal fails, it
// returns the last one that is still valid. It holds no lock while a certificate is issued.
func (c *Client) certificate(ctx context.Context) (*tls.Certificate, error) {
	if c.o.Issuer == nil {
		s := c.a.serving.Load()
		if s == nil {
			return nil, errNoCertificate
		}
		leaf, err := x509.ParseCertificate(s.certificate.Certificate[0])
		if err == nil && len(leaf.URIs) != 1 {
			err = errNoIdentity
		}
		return &s.certificate, err
	}
	held, due := c.current()
	if !due {
		return held.certificate, nil
	}
	select {
	case c.issuing <- struct{}{}:
	default:
		if held.certificate != nil {
			return held.certificate, nil
		}
		select {
		case c.issuing <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-c.issuing }()
	if held, due = c.current(); !due { // another caller has renewed it
		return held.certificate, nil
	}
	issued, notAfter, err := c.issue(ctx)
	switch {
	case err == nil:
		c.keep(ownCertificate{issued, rotation.Renewal(c.now(), notAfter, 0), notAfter, held.renewed})
		return issued, nil
	case held.certificate != nil: // the next connection tries again
		return held.certificate, nil
	}
	return nil, err
}

// now returns the time of day without the monotonic clock reading: certificates are compared with the wall clock.
func (c *Client) now() time.Time { return c.a.o.CA.Now().Round(0) }

// current returns the certificate, without one that has expired, and reports whether to renew it.
func (c *Client) current() (held ownCertificate, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if !now.Before(c.held.notAfter) {
		c.held.certificate = nil
	}
	return c.held, c.held.certificate == nil || !now.Before(c.held.renewal)
}

// keep keeps a certificate, unless Renew was called while it was issued.
func (c *Client) keep(issued ownCertificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if issued.renewed == c.held.renewed {
		c.held = issued
	}
}

// issue requests a certificate of the server's identity, as workloads do.
func (c *Client) issue(ctx context.Context) (*tls.Certificate, time.Time, error) {
	id := c.o.ID()
	uri, err := url.Parse(id.String())
	if err != nil {
		return nil, time.Time{}, err
	}
	key, err := pki.GenerateKey()
	if err != nil {
		return nil, time.Time{}, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{uri}}, key)
	if err != nil {
		return nil, time.Time{}, err
	}
	issued, err := c.o.Issuer.Issue(ctx, ca.Request{ID: id, CSR: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("failed to issue a certificate of %s: %w", id, err)
	}
	chain, err := issued.Shown()
	return &tls.Certificate{PrivateKey: key, Certificate: chain}, issued.NotAfter, err
}
