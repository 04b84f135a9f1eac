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

// Held shows the server's own certificate to callers that are told which roots verify it, such as API servers by the
// caBundle of a webhook. After a renewal it shows the previous certificate until every caller trusts the root of the
// new one, or until the previous one expires. Safe for concurrent use.
type Held struct {
	a *Authority

	mu      sync.Mutex
	shown   *serving
	callers map[string]callerRoots
	since   time.Time // when the roots of a caller last changed
	roots   []retained
}

// callerRoots are the roots that one caller was told.
type callerRoots struct {
	bundles [][]byte
	pools   []*x509.CertPool // a pool for each bundle
}

// retained is a root that callers are still told although the current certificate may not need it.
type retained struct {
	root     *x509.Certificate
	lastUsed time.Time // when it last verified a certificate of this server
}

// Timing and bound of the callers' roots.
const (
	// settleTime is the time from telling callers new roots until they are taken to trust them, because an API server
	// may learn of the change later than this server.
	settleTime = 2 * time.Second
	// retention is how long a root that this server no longer needs is kept for other replicas, which may go on showing
	// a certificate of that root until they learn of the new one.
	retention = 10 * time.Minute
	// expiring is the remaining validity below which the previous certificate is replaced in any case.
	expiring = time.Minute
)

// Hold returns a Held that has shown no certificate yet.
func (a *Authority) Hold() *Held { return &Held{a: a, callers: map[string]callerRoots{}} }

// TLS returns a server configuration that shows the chosen certificate. It requests no certificate from callers.
func (h *Held) TLS(base *tls.Config) *tls.Config {
	c := base.Clone()
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		s := h.choose()
		if s == nil {
			return nil, errNoCertificate
		}
		return &s.certificate, nil
	}
	return c
}

// choose returns the certificate to show, or nil if there is none yet.
func (h *Held) choose() *serving {
	newest := h.a.serving.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shown == nil || h.shown != newest && (h.mustReplace() || h.trusted(newest)) {
		h.shown = newest
	}
	return h.shown
}

// mustReplace reports whether the shown certificate expires soon or is not valid yet. The caller holds h.mu.
func (h *Held) mustReplace() bool {
	now := h.a.o.CA.Now()
	leaf, err := leafOf(h.shown)
	return err != nil || now.Add(expiring).After(leaf.NotAfter) || now.Before(leaf.NotBefore)
}

// trusted reports whether every caller trusts a certificate. The caller holds h.mu.
func (h *Held) trusted(s *serving) bool {
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
		for _, roots := range caller.pools {
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

// Observed sets the roots that a caller was told, as PEM; an empty list removes the caller. Roots in the first call for
// a caller were written by an earlier server or another replica, and are retained.
func (h *Held) Observed(caller string, bundles [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	had, known := h.callers[caller]
	if known && slices.EqualFunc(had.bundles, bundles, bytes.Equal) || len(bundles) == 0 && !known {
		return
	}
	h.since = h.a.o.CA.Now()
	if len(bundles) == 0 {
		delete(h.callers, caller)
		return
	}
	now := callerRoots{bundles: slices.Clone(bundles)}
	for _, text := range bundles {
		pool := x509.NewCertPool()
		list, err := pki.ParseCertificates(text)
		for _, c := range list {
			pool.AddCert(c)
			if !known && err == nil {
				h.retain(c)
			}
		}
		now.pools = append(now.pools, pool)
	}
	h.callers[caller] = now
}

// maxRetained bounds the roots that callers are told besides the current ones.
const maxRetained = 16

// retain records that a root is in use now. The caller holds h.mu.
func (h *Held) retain(c *x509.Certificate) {
	now := h.a.o.CA.Now()
	for i := range h.roots {
		if h.roots[i].root.Equal(c) {
			h.roots[i].lastUsed = now
			return
		}
	}
	if len(h.roots) < maxRetained && now.Before(c.NotAfter) {
		h.roots = append(h.roots, retained{c, now})
	}
}

// Roots returns the roots to tell the callers, as PEM: the roots of the newest certificate and the retained ones. It
// returns nil while there is no certificate.
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
	if h.shown != h.a.serving.Load() { // the shown certificate still needs the retained roots
		for i := range h.roots {
			h.roots[i].lastUsed = now
		}
	}
	h.roots = slices.DeleteFunc(h.roots, func(r retained) bool { return now.Sub(r.lastUsed) >= retention || now.After(r.root.NotAfter) })
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
