package pki

import (
	"bytes"
	"crypto/fips140"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/istiod-lite/istiod-lite/api/armor"
)

// Revocations are certificate revocation lists. They are immutable; nil stands for no lists.
type Revocations struct {
	text  []byte
	lists []revocations
}

// revocations is one list, with its revoked serial numbers as text.
type revocations struct {
	list   *x509.RevocationList
	serial map[string]bool
}

// maxRevocationText bounds the text of all lists in bytes: some 20,000 certificates.
const maxRevocationText = 1 << 20

// ParseRevocations returns the lists of a PEM text; nil if it is empty.
func ParseRevocations(text []byte) (*Revocations, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if len(text) > maxRevocationText {
		return nil, fmt.Errorf("%d bytes of revocation lists: there may be %d", len(text), maxRevocationText)
	}
	r := &Revocations{text: text}
	blocks, err := armor.Blocks(text)
	if err != nil {
		return nil, err
	}
	if len(blocks) == 0 {
		return nil, errors.New("there is no revocation list in PEM")
	}
	for _, b := range blocks {
		if b.Type != armor.Revoked {
			return nil, fmt.Errorf("a PEM block %.40q instead of a revocation list", b.Type)
		}
		list, err := x509.ParseRevocationList(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("revocation list %d: %w", len(r.lists)+1, err)
		}
		one := revocations{list, map[string]bool{}}
		for _, e := range list.RevokedCertificateEntries {
			one.serial[serialText(e.SerialNumber)] = true
		}
		r.lists = append(r.lists, one)
	}
	return r, nil
}

func serialText(n *big.Int) string { return string(n.Bytes()) }

// Text returns the lists as PEM; nil if there are none.
func (r *Revocations) Text() []byte {
	if r == nil {
		return nil
	}
	return r.text
}

// Len returns the number of lists.
func (r *Revocations) Len() int {
	if r == nil {
		return 0
	}
	return len(r.lists)
}

// Renewal returns the earliest next update of the lists, or the zero time if no list has one.
func (r *Revocations) Renewal() (at time.Time) {
	if r == nil {
		return at
	}
	for _, one := range r.lists {
		if next := one.list.NextUpdate; !next.IsZero() && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	return at
}

// SignedByNone returns the numbers, from 1, of the lists that none of the issuers signed.
func (r *Revocations) SignedByNone(issuers []*x509.Certificate) (numbers []int) {
	if r == nil {
		return nil
	}
	for i, one := range r.lists {
		if !slices.ContainsFunc(issuers, func(c *x509.Certificate) bool { return signedBy(one.list, c) }) {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// Check returns an error if a certificate of a verified chain, from the leaf to the root, was revoked by its issuer.
func (r *Revocations) Check(chain []*x509.Certificate) error {
	if r == nil {
		return nil
	}
	for i, c := range chain[:len(chain)-1] {
		for _, one := range r.lists {
			if one.serial[serialText(c.SerialNumber)] && signedBy(one.list, chain[i+1]) {
				return errors.New("the certificate, or one that leads to its root, was revoked")
			}
		}
	}
	return nil
}

// signedBy reports whether an issuer signed a list. It does not require the key usage cRLSign: ignoring a list for lack
// of it would silently revoke nothing. For the same reason, it accepts SHA-1 even in Go's mode fips140=only.
func signedBy(l *x509.RevocationList, issuer *x509.Certificate) (ok bool) {
	fips140.WithoutEnforcement(func() {
		ok = issuer.CheckSignature(l.SignatureAlgorithm, l.RawTBSRevocationList, l.Signature) == nil
	})
	return ok
}
