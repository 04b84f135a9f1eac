package authority

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Held shows the server's own certificate to callers that are told by which roots to verify it, such as API servers by
// the caBundle of a webhook. It goes on showing the last one until they trust the root of a new one, or the last one
// expires. Safe for concurrent use.
type Held struct {
	a *Authority

	mu      sync.Mutex
	shown   *serving
	callers map[string]told
	since   time.Time // when the roots of a caller changed last
	roots   []retained
}

// told is what a caller has been told.
type told struct {
	texts [][]byte
	roots []*x509.CertPool // of each text
}

// retained is a root that callers are told.
type retained struct {
	root *x509.Certificate
	last time.Time // when a certificate of this server's was last verified by it
}

// Times of what callers are told.
const (
	// settleTime is how long callers have been told roots before they are taken to trust them: an API server learns of it
	// as late as this server, or later.
	settleTime = 2 * time.Second
	// retention is how long a root that this server needs no more is kept for other replicas, which may show a
	// certificate by it for as long as it takes them to learn of the new one.
	retention = 10 * time.Minute
	// expiring is when a certificate is not worth holding any more.
	expiring = time.Minute
)

// Hold returns a Held that has shown nothing yet.
func (a *Authority) Hold() *Held { return &Held{a: a, callers: map[string]told{}} }

// TLS returns a configuration of a server that shows what is held. It asks callers for no certificate.
func (h *Held) TLS(base *tls.Config) *tls.Config {
	c := base.Clone()
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		s := h.choose()
		if s == nil {
			return nil, errNone
		}
		return &s.certificate, nil
	}
	return c
}

// choose returns what to show, nil if there is no certificate yet.
func (h *Held) choose() *serving {
	newest := h.a.serving.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shown == nil || h.shown != newest && (h.stale() || h.good(newest)) {
		h.shown = newest
	}
	return h.shown
}

// stale reports whether what is shown has to go, trusted or not. The caller holds h.mu.
func (h *Held) stale() bool {
	now := h.a.o.CA.Now()
	leaf, err := leafOf(h.shown)
	return err != nil || now.Add(expiring).After(leaf.NotAfter) || now.Before(leaf.NotBefore)
}

// good reports whether every caller trusts a certificate. The caller holds h.mu.
func (h *Held) good(s *serving) bool {
	if h.a.o.CA.Now().Sub(h.since) < settleTime {
		return false
	}
	leaf, err := leafOf(s)
	if err != nil {
		return false
	}
	between := x509.NewCertPool()
	for _, raw := range s.certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(raw); err == nil {
			between.AddCert(c)
		}
	}
	for _, caller := range h.callers {
		for _, roots := range caller.roots {
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: h.a.o.CA.Now()}); err != nil {
				return false
			}
		}
	}
	return true
}

func leafOf(s *serving) (*x509.Certificate, error) {
	if s.certificate.Leaf != nil {
		return s.certificate.Leaf, nil
	}
	return x509.ParseCertificate(s.certificate.Certificate[0])
}

// Observed takes the roots that a caller has been told, as PEM; none if it calls no more. At the first call about a
// caller, an earlier server or another replica has written them, and they are kept for a while.
func (h *Held) Observed(caller string, bundles [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	had, known := h.callers[caller]
	if known && slices.EqualFunc(had.texts, bundles, bytes.Equal) || len(bundles) == 0 && !known {
		return
	}
	h.since = h.a.o.CA.Now()
	if len(bundles) == 0 {
		delete(h.callers, caller)
		return
	}
	now := told{texts: slices.Clone(bundles)}
	for _, text := range bundles {
		pool := x509.NewCertPool()
		list, err := pki.ParseCertificates(text)
		for _, c := range list {
			pool.AddCert(c)
			if !known && err == nil {
				h.retain(c)
			}
		}
		now.roots = append(now.roots, pool)
	}
	h.callers[caller] = now
}

// mostRetained bounds the roots that callers are told beside those in force.
const mostRetained = 16

// retain notes that a root is in use now. The caller holds h.mu.
func (h *Held) retain(c *x509.Certificate) {
	now := h.a.o.CA.Now()
	for i := range h.roots {
		if h.roots[i].root.Equal(c) {
			h.roots[i].last = now
			return
		}
	}
	if len(h.roots) < mostRetained && now.Before(c.NotAfter) {
		h.roots = append(h.roots, retained{c, now})
	}
}

// Roots returns what to tell the callers, as PEM: the roots of the newest certificate, and those that were in use a
// while ago. Nil while there is no certificate.
func (h *Held) Roots() []byte {
	newest := h.choose()
	if newest == nil {
		return nil
	}
	current, err := pki.ParseCertificates(h.a.ServerRoots())
	if err != nil || len(current) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.a.o.CA.Now()
	if h.shown != h.a.serving.Load() { // what is shown is still verified by roots that are not in force any more
		for i := range h.roots {
			h.roots[i].last = now
		}
	}
	h.roots = slices.DeleteFunc(h.roots, func(r retained) bool { return now.Sub(r.last) >= retention || now.After(r.root.NotAfter) })
	list := slices.Clone(current)
	for _, r := range h.roots {
		if !slices.ContainsFunc(list, r.root.Equal) {
			list = append(list, r.root)
		}
	}
	for _, c := range current {
		h.retain(c)
	}
	return pki.EncodeCertificates(list...)
}
