package ca

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Options of a CA.
type Options struct {
	TTL    time.Duration    // lifetime if the caller asks for none: DEFAULT_WORKLOAD_CERT_TTL
	MaxTTL time.Duration    // longest lifetime that a caller may ask for: MAX_WORKLOAD_CERT_TTL
	Now    func() time.Time // time.Now if nil
}

// MinRemaining is how long the CA's own certificate must remain valid for the CA to issue a certificate.
const MinRemaining = 10 * time.Minute

// CA issues certificates. It is safe for concurrent use.
type CA struct {
	o      Options
	bundle atomic.Pointer[pki.Bundle]
}

// New returns a CA without a bundle. It issues nothing until Use.
func New(o Options) *CA {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &CA{o: o}
}

// Now returns the time by the CA's clock.
func (c *CA) Now() time.Time { return c.o.Now() }

// Use makes the CA sign with a bundle from now on.
func (c *CA) Use(b *pki.Bundle) { c.bundle.Store(b) }

// Bundle returns the bundle that the CA signs with, or nil before the first Use.
func (c *CA) Bundle() *pki.Bundle { return c.bundle.Load() }

// Errors of Issue and IssueServer. Any other error is the caller's fault.
var (
	ErrUnavailable = errors.New("no certificate can be issued now") // a later attempt may succeed
	ErrInternal    = errors.New("the certificate could not be signed")
)

// Issued is a certificate with the chain that leads to its root.
type Issued struct {
	Chain    [][]byte // PEM: the leaf, then its issuers up to the root, then all roots that workloads trust
	NotAfter time.Time
	Extra    bool // the request asked for other names too, which were left out
}

// Shown returns the certificates that the owner shows in handshakes, as DER: the chain without the roots.
func (i *Issued) Shown() ([][]byte, error) {
	var list [][]byte
	for _, text := range i.Chain[:len(i.Chain)-1] {
		parsed, err := pki.ParseCertificates(text)
		if err != nil {
			return nil, err
		}
		for _, c := range parsed {
			list = append(list, c.Raw)
		}
	}
	return list, nil
}

// Request is a request for a certificate.
type Request struct {
	ID  identity.ID // identity to certify; the caller has been authenticated
	CSR []byte      // PEM, PKCS #10
	TTL time.Duration
	// Signer is the Kubernetes signer that the caller names. A CA that signs itself ignores it.
	Signer string
}

// Leaf returns the certificate to issue, and the parsed CSR. The certificate is valid for at most maxTTL, and for ttl
// if the caller asks for no lifetime.
func (q Request) Leaf(ttl, maxTTL time.Duration) (pki.Leaf, *pki.Request, error) {
	l := pki.Leaf{URI: q.ID.String(), TTL: cmp.Or(q.TTL, min(ttl, maxTTL))}
	if _, err := identity.Parse(l.URI); err != nil {
		return l, nil, err
	}
	if q.TTL < 0 || q.TTL > maxTTL {
		return l, nil, fmt.Errorf("a certificate may be valid for %s at most, not %s", maxTTL, q.TTL)
	}
	r, err := pki.ParseRequest(q.CSR)
	if err == nil {
		l.Key = r.Key
	}
	return l, r, err
}

// Issue returns a certificate of an identity for the key of a request.
func (c *CA) Issue(_ context.Context, q Request) (*Issued, error) {
	l, r, err := q.Leaf(c.o.TTL, c.o.MaxTTL)
	if err != nil {
		return nil, err
	}
	out, err := c.sign(c.Bundle(), l)
	if err != nil {
		return nil, err
	}
	out.Extra = !r.AsksFor(l.URI)
	return out, nil
}

// IssueServer returns a certificate for a key with a server's names, which are DNS names and IP addresses. It is signed
// with b, which need not be the bundle in use.
func (c *CA) IssueServer(b *pki.Bundle, names []string, key crypto.PublicKey, ttl time.Duration) (*Issued, error) {
	if len(names) == 0 {
		return nil, errors.New("a server's certificate needs a name")
	}
	return c.sign(b, pki.Leaf{Names: names, Key: key, TTL: ttl})
}

func (c *CA) sign(b *pki.Bundle, l pki.Leaf) (*Issued, error) {
	now := c.o.Now()
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: the CA has no certificate yet", ErrUnavailable)
	case b.NotAfter().Sub(now) < MinRemaining:
		return nil, fmt.Errorf("%w: the CA's certificate, or one before it, expires at %s", ErrUnavailable, b.NotAfter().Format(time.RFC3339))
	}
	der, notAfter, err := b.Sign(l, now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInternal, err)
	}
	out := &Issued{Chain: [][]byte{pki.EncodeCertificate(der)}, NotAfter: notAfter}
	for _, c := range b.Chain {
		out.Chain = append(out.Chain, pki.EncodeCertificates(c))
	}
	out.Chain = append(out.Chain, pki.EncodeCertificates(b.Roots...))
	return out, nil
}
