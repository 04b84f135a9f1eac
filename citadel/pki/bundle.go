package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

// Bundle is the certificate, key and roots of a CA. It is immutable, and its parts were checked together.
type Bundle struct {
	Certificate *x509.Certificate   // certificate of the signing key
	Chain       []*x509.Certificate // from Certificate towards the root, without the root; empty if Certificate is a root
	Roots       []*x509.Certificate // roots that workloads trust; the first one is the root of Certificate

	key                 crypto.Signer
	pool, intermediates *x509.CertPool
	notAfter            time.Time // earliest expiry of Certificate, Chain and the root
}

// Files are the parts of a bundle as PEM, under the names that they have in a Secret or a folder:
// https://istio.io/latest/docs/tasks/security/cert-management/plugin-ca-cert/.
type Files struct {
	Certificate []byte // ca-cert.pem
	Key         []byte // ca-key.pem
	Chain       []byte // cert-chain.pem; empty if Certificate is a root
	Roots       []byte // root-cert.pem
}

// ErrExpired is the error of a bundle whose own certificate has expired.
var ErrExpired = errors.New("the CA's certificate expired")

// ParseBundle returns the bundle of some files. It is an error if a part is missing, if parts do not belong together,
// or if anything has expired.
func ParseBundle(f Files, now time.Time) (*Bundle, error) {
	for _, part := range []struct {
		name string
		text []byte
	}{{"certificate", f.Certificate}, {"private key", f.Key}, {"root certificate", f.Roots}} {
		if len(bytes.TrimSpace(part.text)) == 0 {
			return nil, fmt.Errorf("the CA's %s is missing", part.name)
		}
	}
	key, err := ParseKey(f.Key)
	if err != nil {
		return nil, fmt.Errorf("the CA's private key: %w", err)
	}
	own, err := ParseCertificates(f.Certificate)
	if err != nil {
		return nil, fmt.Errorf("the CA's certificate: %w", err)
	}
	chain, err := ParseCertificates(f.Chain)
	if err != nil {
		return nil, fmt.Errorf("the certificate chain: %w", err)
	}
	roots, err := ParseCertificates(f.Roots)
	if err != nil {
		return nil, fmt.Errorf("the root certificates: %w", err)
	}
	return newBundle(key, own[0], append(own, chain...), roots, now)
}

// newBundle returns a bundle. others may contain the issuers between own and a root, in any order.
func newBundle(key crypto.Signer, own *x509.Certificate, others, roots []*x509.Certificate, now time.Time) (*Bundle, error) {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !public.Equal(own.PublicKey):
		return nil, errors.New("the CA's private key does not belong to its certificate")
	case !own.BasicConstraintsValid || !own.IsCA || own.KeyUsage != 0 && own.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("the CA's certificate may not sign certificates")
	case now.Before(own.NotBefore):
		return nil, fmt.Errorf("the CA's certificate is valid from %s", own.NotBefore.Format(time.RFC3339))
	case !now.Before(own.NotAfter):
		return nil, fmt.Errorf("%w at %s", ErrExpired, own.NotAfter.Format(time.RFC3339))
	}
	b := &Bundle{Certificate: own, key: key, pool: x509.NewCertPool(), intermediates: x509.NewCertPool()}
	for _, c := range roots {
		b.pool.AddCert(c)
	}
	for _, c := range others {
		b.intermediates.AddCert(c)
	}
	paths, err := own.Verify(x509.VerifyOptions{
		Roots: b.pool, Intermediates: b.intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return nil, fmt.Errorf("the CA's certificate does not lead to a root: %w", err)
	}
	path := paths[0]
	root := path[len(path)-1]
	if b.Chain = path[:len(path)-1]; len(path) == 1 {
		b.Chain = nil
	}
	b.Roots = []*x509.Certificate{root}
	for _, c := range roots {
		if !c.Equal(root) {
			b.Roots = append(b.Roots, c)
		}
	}
	b.notAfter = own.NotAfter
	for _, c := range path {
		if err := CheckAuthorityKey(c.PublicKey); err != nil {
			return nil, fmt.Errorf("%s has %w", c.Subject, err)
		}
		b.notAfter = earlier(b.notAfter, c.NotAfter)
	}
	return b, nil
}

// NewSelfSigned returns a bundle whose root is new and signs itself.
func NewSelfSigned(organization string, lifetime time.Duration, now time.Time) (*Bundle, error) {
	key, err := GenerateKey()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{organization}},
		NotBefore:             now.Add(-Skew),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return newBundle(key, root, nil, []*x509.Certificate{root}, now)
}

// WithRoots returns the same CA with a new list of roots that workloads trust. The list must include the CA's own root.
func (b *Bundle) WithRoots(roots []*x509.Certificate, now time.Time) (*Bundle, error) {
	return newBundle(b.key, b.Certificate, b.Chain, roots, now)
}

// Encode returns the parts of a bundle as PEM.
func (b *Bundle) Encode() (Files, error) {
	key, err := EncodeKey(b.key)
	if err != nil {
		return Files{}, err
	}
	return Files{
		Certificate: EncodeCertificates(b.Certificate), Key: key,
		Chain: EncodeCertificates(b.Chain...), Roots: EncodeCertificates(b.Roots...),
	}, nil
}

// NotAfter returns the earliest expiry of the CA's certificate, its chain and its root. The CA issues no certificate
// that is valid longer.
func (b *Bundle) NotAfter() time.Time { return b.notAfter }
