package trustdomain

import (
	"crypto/x509"
	"fmt"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Mesh provides the mesh configuration.
type Mesh interface {
	// Mesh returns the mesh configuration in force; nil before the first one.
	Mesh() *mesh.Config
}

// Options of Domains.
type Options struct {
	Mesh    Mesh
	Bundles Bundles // nil if no bundles are fetched
	Issuer  *ca.CA  // optional

	Signers     []string // signers of Kubernetes that sign workloads' and the server's certificates by default
	SignerRoots string   // path of a file with the roots of signers that the mesh configuration does not cover
}

// Domains decides which roots prove identities of which trust domains. Safe for concurrent use.
type Domains struct {
	o Options
	// Authority provides the revocation lists, and the roots of a server that another system certifies. It is nil if
	// the server has no certificate, and is set before the first use.
	Authority *authority.Authority

	mu       sync.Mutex
	parsed   *mesh.Config // configuration that list and findings were made from; nil before the first
	list     []anchor
	findings []diag.Diagnostic
}

// New returns Domains without an Authority.
func New(o Options) *Domains { return &Domains{o: o} }

// TrustDomain returns the mesh's own trust domain; "" while there is no mesh configuration.
func (d *Domains) TrustDomain() string {
	if m := d.o.Mesh.Mesh(); m != nil {
		return m.GetTrustDomain()
	}
	return ""
}

// Trusts reports whether a trust domain is the mesh's own or one of its aliases.
func (d *Domains) Trusts(trustDomain string) bool {
	m := d.o.Mesh.Mesh()
	return m != nil && slices.Contains(m.TrustDomains(), trustDomain)
}

// Revokes reports whether the CA has lists of revoked certificates.
func (d *Domains) Revokes() bool { return d.Authority.Revoked().Len() > 0 }

// VerifyTrust returns an error unless a chain proves identities of a trust domain of the mesh: its root is trusted for
// that, and nothing in the chain was revoked. It reports whether the root is federated.
func (d *Domains) VerifyTrust(chain []*x509.Certificate, trustDomain string) (federated bool, err error) {
	if err := d.Authority.Revoked().Check(chain); err != nil {
		return false, err
	}
	return d.trustsRoot(chain[len(chain)-1], trustDomain)
}

// trustsRoot returns an error unless a root is trusted for a trust domain: it is a root of the CA, or the mesh
// configuration lists it for the trust domain. A root of a signer, or of the authority that certifies the server
// instead of a CA, is trusted for every trust domain, unless the mesh configuration lists it for certain ones. A root
// that is listed only for aliases is federated.
func (d *Domains) trustsRoot(root *x509.Certificate, trustDomain string) (federated bool, err error) {
	if b := d.o.Issuer.Bundle(); b != nil && slices.ContainsFunc(b.Roots, root.Equal) {
		return false, nil
	}
	own, written := d.TrustDomain(), false
	for _, a := range d.anchors() {
		if !slices.ContainsFunc(a.roots, root.Equal) {
			continue
		}
		written = true
		switch {
		case len(a.trustDomains) == 0:
			return false, nil
		case !slices.Contains(a.trustDomains, trustDomain):
		case slices.Contains(a.trustDomains, own):
			return false, nil
		default:
			federated = true
		}
	}
	switch {
	case federated:
		return true, nil
	case !written && slices.ContainsFunc(slices.Concat(d.Authority.VouchingRoots(), d.signerRoots()), root.Equal):
		return false, nil
	}
	return false, fmt.Errorf("the certificate's root is not trusted for trust domain %s", trustDomain)
}

// Federated reports whether a root is listed for a trust domain and is not a root of the mesh's own.
func (d *Domains) Federated(trustDomain string) bool {
	own := d.TrustDomain()
	return slices.ContainsFunc(d.anchors(), func(a anchor) bool {
		return slices.Contains(a.trustDomains, trustDomain) && !slices.Contains(a.trustDomains, own)
	})
}

// Chains returns the chains of a client certificate, which is the first of the certificates, to trusted roots.
func (d *Domains) Chains(certificates []*x509.Certificate) ([][]*x509.Certificate, error) {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range append(d.Anchors(), d.ownRoots()...) {
		roots.AddCert(c)
	}
	for _, c := range certificates[1:] {
		between.AddCert(c)
	}
	if b := d.o.Issuer.Bundle(); b != nil {
		for _, c := range append(slices.Clip(b.Chain), b.Certificate) {
			between.AddCert(c)
		}
	}
	return certificates[0].Verify(
		x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// Anchors returns the roots of callers besides the roots of the CA, without duplicates.
func (d *Domains) Anchors() (roots []*x509.Certificate) {
	var all []*x509.Certificate
	for _, a := range d.anchors() {
		all = append(all, a.roots...)
	}
	return unique(append(all, d.signerRoots()...), nil)
}

// unique returns the certificates of list that are not in others, without duplicates.
func unique(list, others []*x509.Certificate) (out []*x509.Certificate) {
	for _, c := range list {
		if !slices.ContainsFunc(others, c.Equal) && !slices.ContainsFunc(out, c.Equal) {
			out = append(out, c)
		}
	}
	return out
}

// OfSigner returns the roots of a signer of Kubernetes: from the entries of the mesh configuration that name the signer
// or no signer, else from the file SignerRoots.
func (d *Domains) OfSigner(signer string) []*x509.Certificate {
	var roots []*x509.Certificate
	for _, a := range d.anchors() {
		if len(a.signers) == 0 || slices.Contains(a.signers, signer) {
			roots = append(roots, a.roots...)
		}
	}
	if len(roots) > 0 || d.o.SignerRoots == "" {
		return roots
	}
	text, err := safe.ReadFile(d.o.SignerRoots)
	if err != nil {
		return nil
	}
	roots, _ = pki.ParseCertificates(text) // without roots nothing is signed, and that error names the file
	return roots
}

// signerRoots returns the roots of the default signers.
func (d *Domains) signerRoots() (roots []*x509.Certificate) {
	for _, signer := range d.o.Signers {
		roots = append(roots, d.OfSigner(signer)...)
	}
	return roots
}

// ownRoots returns the roots of workloads' certificates of any issuer.
func (d *Domains) ownRoots() (roots []*x509.Certificate) {
	if d.Authority == nil {
		return nil
	}
	if b := d.o.Issuer.Bundle(); b != nil {
		roots = slices.Clone(b.Roots)
	}
	return append(append(roots, d.Authority.VouchingRoots()...), d.signerRoots()...)
}

// Sent returns the roots that proxies trust with a mesh configuration, which may not be in force yet, as PEM texts. The
// first text has the mesh's own roots, and each entry of caCertificates has a further text. No certificate occurs
// twice.
func (d *Domains) Sent(m *mesh.Config) (texts []string) {
	var seen []*x509.Certificate
	add := func(roots []*x509.Certificate) {
		if further := unique(roots, seen); further != nil {
			seen = append(seen, further...)
			texts = append(texts, string(pki.EncodeCertificates(further...)))
		}
	}
	add(d.ownRoots())
	list, _ := d.parse(m)
	for _, a := range d.fetched(list) {
		add(a.roots)
	}
	return texts
}
