package rotation

import (
	"crypto/x509"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// State is a self-signed CA and the progress of the replacement of its root.
type State struct {
	Signing *pki.Bundle         // its first root is its own certificate
	Next    *pki.Bundle         // the announced CA, trusted but not signing yet; nil if there is none
	Old     []*x509.Certificate // replaced roots that are still trusted
	Since   time.Time           // time of the last step; zero before the first
}

// Options of a rotation.
type Options struct {
	Organization string        // organization in the subject of a new root
	Lifetime     time.Duration // lifetime of a new root: CITADEL_SELF_SIGNED_CA_CERT_TTL
	// GracePercent is the part of a root's lifetime, at its end, in which it is replaced:
	// CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE.
	GracePercent int
	MaxTTL       time.Duration // longest lifetime of the certificates that the CA issues
}

// Roots returns the certificates that workloads trust. The first is the root of the CA that signs.
func (s State) Roots() []*x509.Certificate {
	list := []*x509.Certificate{s.Signing.Certificate}
	if s.Next != nil {
		list = append(list, s.Next.Certificate)
	}
	return append(list, s.Old...)
}

// Bundle returns the bundle that the CA issues certificates with.
func (s State) Bundle(now time.Time) (*pki.Bundle, error) { return s.Signing.WithRoots(s.Roots(), now) }

// Due returns when the next step of a State is due, which may be in the past.
func (s State) Due(o Options) time.Time {
	switch {
	case s.Next != nil:
		return s.Since.Add(o.MaxTTL + pki.Skew)
	case len(s.Old) > 0 && !s.Since.IsZero(): // without a time an operator has added them, and they stay until the next rotation ends
		return s.Since.Add(o.MaxTTL + pki.Skew)
	}
	c := s.Signing.Certificate
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 100 * time.Duration(o.GracePercent)) // this order does not overflow
}

// Step returns the State after the step that is due, and reports whether a step was due.
func (s State) Step(o Options, now time.Time) (State, bool, error) {
	if now.Before(s.Due(o)) {
		return s, false, nil
	}
	switch {
	case s.Next != nil:
		return State{Signing: s.Next, Old: append([]*x509.Certificate{s.Signing.Certificate}, s.Old...), Since: now}, true, nil
	case len(s.Old) > 0 && !s.Since.IsZero():
		return State{Signing: s.Signing, Since: now}, true, nil
	}
	next, err := pki.NewSelfSigned(o.Organization, o.Lifetime, now)
	if err != nil {
		return s, false, err
	}
	return State{Signing: s.Signing, Next: next, Old: s.Old, Since: now}, true, nil
}
