package authenticate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Certificates authenticates callers by the certificate of their connection, which TLS has verified against the roots
// of the mesh.
type Certificates struct {
	// Trusts reports whether identities of a trust domain are the mesh's.
	Trusts func(trustDomain string) bool
	Now    func() time.Time
	// Vouches returns an error unless a verified chain, from the leaf to its root, is good for a trust domain. It
	// reports whether the root is federated: see identity.Peer. Nil: every chain is good for every one.
	Vouches func(chain []*x509.Certificate, trustDomain string) (federated bool, err error)
}

// Authenticate returns the identity in a certificate. It has exactly one URI, as an X.509-SVID must.
func (c Certificates) Authenticate(_ context.Context, r Request) (identity.Peer, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return identity.Peer{}, ErrNoCredential
	}
	leaf := r.TLS.VerifiedChains[0][0]
	id, err := certificateID(leaf)
	if err != nil {
		return identity.Peer{}, err
	}
	if !c.Trusts(id.TrustDomain) {
		return identity.Peer{}, fmt.Errorf("the certificate's trust domain %s is not the mesh's", id.TrustDomain)
	}
	// TLS looked at the time when the connection began. A connection may live longer than the certificate.
	if c.Now().After(leaf.NotAfter) {
		return identity.Peer{}, fmt.Errorf("the certificate of the connection expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	p := identity.Peer{ID: id, Proof: identity.Certificate, Expires: leaf.NotAfter}
	if c.Vouches == nil {
		return p, nil
	}
	if p.Federated, err = vouched(c.Vouches, r.TLS.VerifiedChains, id.TrustDomain); err != nil {
		return identity.Peer{}, err
	}
	return p, nil
}

// vouched returns an error unless one of the chains of a certificate is good for a trust domain. It reports whether
// only federated roots vouch for it.
func vouched(vouches func([]*x509.Certificate, string) (bool, error), chains [][]*x509.Certificate, trustDomain string) (federated bool, err error) {
	var problems []error
	for _, chain := range chains {
		by, err := vouches(chain, trustDomain)
		switch {
		case err != nil:
			problems = append(problems, err)
		case !by:
			return false, nil
		default:
			federated = true
		}
	}
	if !federated {
		return false, errors.Join(append(problems, errors.New("no root vouches for the certificate"))...)
	}
	return true, nil
}

// certificateID returns the identity of a certificate:
// https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md.
func certificateID(leaf *x509.Certificate) (identity.ID, error) {
	switch {
	case leaf.IsCA:
		return identity.ID{}, errors.New("a CA's certificate names no workload")
	case len(leaf.URIs) != 1:
		return identity.ID{}, fmt.Errorf("the certificate has %d URIs: it must have one", len(leaf.URIs))
	}
	return identity.Parse(leaf.URIs[0].String())
}
