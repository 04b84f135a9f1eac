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
	// Issuer is nil where others issue certificates: then the certificate in Files has to name a workload too.
	Issuer Issuer
	// ID returns the identity of this server as a workload. Its trust domain is empty while the mesh is not known.
	ID func() identity.ID
	// Server is the name of the control plane in the certificates of its servers.
	Server string
}

// Client makes connections to other servers of this control plane as one of them. It has a certificate from the first
// connection on. Safe for concurrent use.
type Client struct {
	o ClientOptions
	a *Authority

	mu      sync.Mutex
	held    *tls.Certificate // nil if the next connection needs a new one
	renewal time.Time
}

// Client returns a Client of this server.
func (a *Authority) Client(o ClientOptions) *Client { return &Client{o: o, a: a} }

// Renew drops the certificate. A new one is issued for the next connection.
func (c *Client) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = nil
}

// TLS returns the configuration of a client that shows the server's identity as a workload, and that accepts servers of
// the control plane alone.
func (c *Client) TLS(ctx context.Context) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.a.ServerRoots()) {
		return nil, errNone
	}
	own, err := c.certificate(ctx)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.o.Server, RootCAs: roots, Certificates: []tls.Certificate{*own},
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			for _, chain := range s.VerifiedChains {
				if err = c.a.Revoked().Check(chain); err == nil {
					return nil
				}
			}
			return err
		},
	}, nil
}

// errNoIdentity is returned where the server's certificate names no workload, and there is no issuer of another.
var errNoIdentity = errors.New("others issue its certificate, which has no SPIFFE ID")

// certificate returns the certificate of the server's identity.
func (c *Client) certificate(ctx context.Context) (*tls.Certificate, error) {
	if c.o.Issuer == nil {
		s := c.a.serving.Load()
		if s == nil {
			return nil, errNone
		}
		leaf, err := x509.ParseCertificate(s.certificate.Certificate[0])
		if err == nil && len(leaf.URIs) != 1 {
			err = errNoIdentity
		}
		return &s.certificate, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.a.o.Now().Round(0) // certificates go by the time of day
	if c.held == nil || !now.Before(c.renewal) {
		held, notAfter, err := c.issue(ctx)
		if err != nil {
			return nil, err
		}
		c.held, c.renewal = held, rotation.Renewal(now, notAfter, 0)
	}
	return c.held, nil
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
