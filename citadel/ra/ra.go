package ra

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Options of an Authority.
type Options struct {
	Client dynamic.Interface
	Signer string // for callers that name no signer: K8S_SIGNER
	Domain string // domain of the signers that callers may name, CERT_SIGNER_DOMAIN; if empty, callers may name none
	// ServerSigner signs certificates of the server itself.
	ServerSigner string

	TTL, MaxTTL time.Duration                           // default and longest lifetime of certificates
	Roots       func(signer string) []*x509.Certificate // returns the roots of a signer; empty if they are unknown

	Logger *slog.Logger
}

// Authority issues certificates that signers of Kubernetes sign. It is safe for concurrent use.
type Authority struct{ o Options }

// New returns an Authority.
func New(o Options) *Authority { return &Authority{o} }

// minTTL is the shortest lifetime that Kubernetes accepts in a CertificateSigningRequest.
const minTTL = 10 * time.Minute

// Issue returns a certificate of an identity for the key of a request, which must ask for that identity only.
func (a *Authority) Issue(ctx context.Context, q ca.Request) (*ca.Issued, error) {
	signer, err := a.signer(q.Signer)
	if err != nil {
		return nil, err
	}
	l, r, err := q.Leaf(a.o.TTL, a.o.MaxTTL)
	switch {
	case err != nil:
		return nil, err
	case !r.AsksOnlyFor(l.URI):
		return nil, fmt.Errorf("the certificate request must ask for %s only, because the signer certifies every name in it", l.URI)
	}
	return a.sign(ctx, signer, q.CSR, l)
}

// IssueServer returns a certificate of a server's names for a key.
func (a *Authority) IssueServer(ctx context.Context, names []string, key crypto.Signer, ttl time.Duration) (*ca.Issued, error) {
	l := pki.Leaf{Names: names, Key: key.Public(), TTL: min(ttl, a.o.MaxTTL)}
	template := &x509.CertificateRequest{}
	template.DNSNames, template.IPAddresses = l.Hosts()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return a.sign(ctx, a.o.ServerSigner, text, l)
}

var signerName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.\-]{0,250}[a-zA-Z0-9])?$`)

// signer returns the full name of the signer that a caller names.
func (a *Authority) signer(named string) (string, error) {
	switch {
	case named == "" && a.o.Signer == "":
		return "", errors.New("the request names no CertSigner, and there is no default one: K8S_SIGNER")
	case named == "":
		return a.o.Signer, nil
	case a.o.Domain == "":
		return "", errors.New("the request names a CertSigner, and there is no domain of such: CERT_SIGNER_DOMAIN")
	case !signerName.MatchString(named):
		return "", fmt.Errorf("%.100q is no name of a signer", named)
	}
	return a.o.Domain + "/" + named, nil
}

// sign lets a signer sign a request, and returns the certificate if it matches the leaf l.
func (a *Authority) sign(ctx context.Context, signer string, csr []byte, l pki.Leaf) (*ca.Issued, error) {
	roots := a.o.Roots(signer)
	if len(roots) == 0 {
		return nil, fmt.Errorf("%w: the roots of signer %s are unknown: write them into the mesh configuration's caCertificates",
			ca.ErrUnavailable, signer)
	}
	text, err := a.request(ctx, signer, csr, max(l.TTL, minTTL))
	if err != nil {
		if ctx.Err() == nil { // the caller waits for it
			a.o.Logger.Error("failed to get a certificate from a signer", "signer", signer, "name", l.URI, "err", err)
		}
		return nil, err
	}
	chain, err := pki.ParseCertificates(text)
	if err == nil && len(chain) == 0 {
		err = errors.New("it is empty")
	}
	if err == nil {
		l.TTL = max(a.o.MaxTTL, minTTL) + pki.Skew // by the signer's clock
		err = l.Verify(chain, roots, time.Now())
	}
	if err != nil {
		a.o.Logger.Error("failed to verify the certificate of a signer", "signer", signer, "name", l.URI, "err", err)
		return nil, fmt.Errorf("%w: signer %s: %w", ca.ErrInternal, signer, err)
	}
	out := &ca.Issued{NotAfter: chain[0].NotAfter}
	for _, c := range chain {
		if !selfSigned(c) {
			out.Chain = append(out.Chain, pki.EncodeCertificates(c))
		}
	}
	out.Chain = append(out.Chain, pki.EncodeCertificates(roots...))
	return out, nil
}

func selfSigned(c *x509.Certificate) bool { return c.CheckSignatureFrom(c) == nil }
