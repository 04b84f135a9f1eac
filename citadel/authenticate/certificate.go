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
type Certificates struct{ TrustDomains TrustDomains }

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
	if !c.TrustDomains.Trusts(id.TrustDomain) {
		return identity.Peer{}, fmt.Errorf("the certificate's trust domain %s is not the mesh's", id.TrustDomain)
	}
	// TLS checked the expiry when the connection began. A connection may outlive its certificate.
	if time.Now().After(leaf.NotAfter) {
		return identity.Peer{}, fmt.Errorf("the certificate of the connection expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	p := identity.Peer{ID: id, Proof: identity.Certificate, Expires: leaf.NotAfter}
	if p.Federated, err = verifyTrust(c.TrustDomains, r.TLS.VerifiedChains, id.TrustDomain); err != nil {
		return identity.Peer{}, err
	}
	return p, nil
}

// verifyTrust returns an error unless one of the chains of a certificate proves identities of a trust domain. It
// reports whether only chains to federated roots do.
func verifyTrust(domains TrustDomains, chains [][]*x509.Certificate, trustDomain string) (federated bool, err error) {
	var problems []error
	for _, chain := range chains {
		by, err := domains.VerifyTrust(chain, trustDomain)
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
