package bootstrap

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/facts/poll"
)

// anchor is one of the mesh configuration's caCertificates.
type anchor struct {
	roots                 []*x509.Certificate
	signers, trustDomains []string // that it is good for; empty: all, and the mesh's own
	field                 string
}

// anchors are the mesh configuration's caCertificates, parsed once for each configuration. Safe for concurrent use.
type anchors struct {
	current func() *mesh.Config // nil: there is none yet
	fetch   facts.Provider      // of the bundles of other trust domains; nil: none is fetched

	mu       sync.Mutex
	of       *mesh.Config // that was parsed; nil: it is to be parsed again
	list     []anchor
	findings []diag.Diagnostic
	bundles  map[string][]*x509.Certificate // by URL: those that were fetched
	urls     []string                       // that are wanted
}

// get returns those of the configuration in force. One that cannot be read does not count.
func (a *anchors) get() ([]anchor, []diag.Diagnostic) {
	now := a.current()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now != a.of && now != nil {
		a.use(now)
	}
	return a.list, slices.Concat(a.findings, a.failing(), expiredAnchors(a.list, time.Now()))
}

// expiredAnchors returns a finding for each entry all of whose roots have expired.
func expiredAnchors(list []anchor, now time.Time) (found []diag.Diagnostic) {
	for _, a := range list {
		var last time.Time
		for _, c := range a.roots {
			if c.NotAfter.After(last) {
				last = c.NotAfter
			}
		}
		if now.After(last) {
			found = append(found, diag.Diagnostic{
				Severity: diag.Error, Code: "InvalidCertificates", Object: "MeshConfig", Field: a.field,
				Message: "the last of its roots expired at " + last.UTC().Format(time.RFC3339) + ": they vouch for nobody", Fix: "write new roots, or remove the entry",
			})
		}
	}
	return found
}

// read returns those of a configuration that may not be in force yet.
func (a *anchors) read(of *mesh.Config) []anchor {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, _, _ := a.parse(of)
	return list
}

// use takes those of the configuration in force, and has their bundles fetched. The caller holds the lock.
func (a *anchors) use(now *mesh.Config) {
	var urls []string
	a.of = now
	a.list, a.findings, urls = a.parse(now)
	if a.fetch != nil && !slices.Equal(urls, a.urls) {
		a.urls = urls
		a.fetch.Want(facts.Needs(urls...))
	}
}

// parse returns those of a configuration, what is wrong with it, and the URLs of bundles in it, sorted. The caller
// holds the lock.
func (a *anchors) parse(of *mesh.Config) (list []anchor, findings []diag.Diagnostic, urls []string) {
	for i, c := range of.GetCaCertificates() {
		field := fmt.Sprintf("caCertificates[%d]", i)
		bad := func(code, message, fix string) {
			findings = append(findings, diag.Diagnostic{Severity: diag.Error, Code: code, Object: "MeshConfig", Field: field, Message: message, Fix: fix})
		}
		if url := c.GetSpiffeBundleUrl(); url != "" {
			if !strings.HasPrefix(url, "https://") || a.fetch == nil {
				bad("InvalidCertificates", "spiffeBundleUrl: bundles are fetched over https alone, so its roots do not count", "write a URL that begins with https://, or its certificates as pem")
				continue
			}
			urls = append(urls, url)
			if roots := a.bundles[url]; roots != nil {
				list = append(list, anchor{roots, c.GetCertSigners(), c.GetTrustDomains(), field})
			}
			continue
		}
		roots, err := pki.ParseCertificates([]byte(c.GetPem()))
		if err == nil && len(roots) == 0 {
			err = errors.New("it is empty")
		}
		if err != nil {
			bad("InvalidCertificates", "pem: "+err.Error()+"; these roots do not count", "write certificates as PEM")
			continue
		}
		list = append(list, anchor{roots, c.GetCertSigners(), c.GetTrustDomains(), field})
	}
	slices.Sort(urls)
	return list, findings, slices.Compact(urls)
}

// failing returns a finding for each bundle that cannot be fetched.
func (a *anchors) failing() (list []diag.Diagnostic) {
	if len(a.urls) == 0 {
		return nil
	}
	failing := a.fetch.Failing()
	for i, c := range a.of.GetCaCertificates() {
		f, fails := failing[c.GetSpiffeBundleUrl()]
		if !fails {
			continue
		}
		applies := "its roots do not count"
		if a.bundles[c.GetSpiffeBundleUrl()] != nil {
			applies = "its last roots stay in force"
		}
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "FactFailing", Object: "MeshConfig", Field: fmt.Sprintf("caCertificates[%d].spiffeBundleUrl", i),
			Message: fmt.Sprintf("the bundle cannot be had since %s: %s; %s", f.Since.UTC().Format(time.RFC3339), f.Why, applies),
			Fix:     "see that this server can have it; it is tried again",
		})
	}
	return list
}

// take takes bundles that were fetched, and those that are too old to count.
func (a *anchors) take(changes []kinds.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range changes {
		if text, ok := facts.Value[string](c.Object); ok {
			a.bundles[c.Name], _ = pki.ParseCertificates([]byte(text)) // it was parsed before
		} else {
			delete(a.bundles, c.Name)
		}
	}
	a.of = nil
}

// spiffeBundle is the kind of the facts that are bundles of trust domains.
var spiffeBundle = &kinds.Kind{Name: "SpiffeBundle"}

// Times of bundles.
const (
	bundleEvery = 5 * time.Minute
	bundleAge   = 7 * 24 * time.Hour // how long one counts that cannot be fetched again
)

// newAnchors returns the anchors of a server, and has the bundles of other trust domains fetched.
func (s *Server) newAnchors() (*anchors, error) {
	fetcher, err := s.newFetcher()
	if err != nil {
		return nil, err
	}
	a := &anchors{current: s.mesh, bundles: map[string][]*x509.Certificate{}}
	p := poll.New(poll.Options[string]{
		Kind: spiffeBundle, Logger: s.o.Logger.With("scope", "ca"), Every: bundleEvery, Retry: time.Second, Longest: time.Minute, Age: bundleAge, Limits: s.o.Limits,
		Handler: func(changes []kinds.Change) {
			a.take(changes)
			s.noticeRoots()
		},
		Ask: func(ctx context.Context, url string) (string, error) {
			text, err := fetcher.Get(ctx, url)
			if err != nil {
				return "", err
			}
			roots, err := pki.ParseSpiffeBundle(text)
			return string(pki.EncodeCertificates(roots...)), err
		},
	})
	a.fetch = p
	s.components.background("bundles of trust domains", p.Run)
	return a, nil
}

// ofSigner returns the roots of a signer of Kubernetes: those that name it, and those that name none. Without any they
// are in a file.
func (a *anchors) ofSigner(signer, file string) []*x509.Certificate {
	var roots []*x509.Certificate
	list, _ := a.get()
	for _, c := range list {
		if len(c.signers) == 0 || slices.Contains(c.signers, signer) {
			roots = append(roots, c.roots...)
		}
	}
	if len(roots) > 0 || file == "" {
		return roots
	}
	text, err := safe.ReadFile(file)
	if err != nil {
		return nil
	}
	roots, _ = pki.ParseCertificates(text) // without any nothing is signed, and the error says so
	return roots
}

// federate reports whether a root is written for a trust domain and not for the mesh's own.
func (a *anchors) federate(trustDomain, own string) bool {
	list, _ := a.get()
	return slices.ContainsFunc(list, func(c anchor) bool {
		return slices.Contains(c.trustDomains, trustDomain) && !slices.Contains(c.trustDomains, own)
	})
}

// all returns every root.
func (a *anchors) all() []*x509.Certificate {
	var roots []*x509.Certificate
	list, _ := a.get()
	for _, c := range list {
		roots = append(roots, c.roots...)
	}
	return roots
}

// vouches returns an error unless a chain is good for a trust domain of the mesh: the root is that of the CA, or is
// written for the trust domain, and nothing in the chain was revoked. The root of a signer, or of who certifies the
// server in the place of a CA, counts for every one, unless the mesh configuration has it too and says for which. A
// root that is written for aliases alone is federated.
func (s *Server) vouches(chain []*x509.Certificate, trustDomain string) (federated bool, err error) {
	if err := s.secure.authority.Revoked().Check(chain); err != nil {
		return false, err
	}
	return s.secure.counts(chain[len(chain)-1], trustDomain, s.trustDomain())
}

// verify returns the chains of a client certificate, which is the first one, to the roots of callers.
func (x *secure) verify(certificates []*x509.Certificate) ([][]*x509.Certificate, error) {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range append(x.trusted(), x.authority.VouchingRoots()...) {
		roots.AddCert(c)
	}
	for _, c := range certificates[1:] {
		between.AddCert(c)
	}
	if b := x.issuer.Bundle(); b != nil {
		for _, c := range b.Roots {
			roots.AddCert(c)
		}
		for _, c := range append(slices.Clip(b.Chain), b.Certificate) {
			between.AddCert(c)
		}
	}
	return certificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// counts is vouches without revocation. own is the trust domain of the mesh that is no alias.
func (x *secure) counts(root *x509.Certificate, trustDomain, own string) (federated bool, err error) {
	if b := x.issuer.Bundle(); b != nil && slices.ContainsFunc(b.Roots, root.Equal) {
		return false, nil
	}
	list, _ := x.anchors.get()
	written := false
	for _, a := range list {
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
	if federated {
		return true, nil
	}
	if !written && (slices.ContainsFunc(x.authority.VouchingRoots(), root.Equal) || x.ra != nil && slices.ContainsFunc(x.ra.signerRoots(), root.Equal)) {
		return false, nil
	}
	return false, fmt.Errorf("the certificate's root is not one of trust domain %s", trustDomain)
}
