package bootstrap

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// anchor is one of the mesh configuration's caCertificates.
type anchor struct {
	roots                 []*x509.Certificate
	signers, trustDomains []string // that it is good for; empty: all, and the mesh's own
}

// anchors are the mesh configuration's caCertificates, parsed once for each configuration. Safe for concurrent use.
type anchors struct {
	current func() *mesh.Config // nil: there is none yet

	mu       sync.Mutex
	of       *mesh.Config
	list     []anchor
	findings []diag.Diagnostic
}

// get returns those of the configuration in force. One that cannot be read does not count.
func (a *anchors) get() ([]anchor, []diag.Diagnostic) {
	now := a.current()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now == a.of || now == nil {
		return a.list, a.findings
	}
	a.of, a.list, a.findings = now, nil, nil
	for i, c := range now.GetCaCertificates() {
		field := fmt.Sprintf("caCertificates[%d]", i)
		bad := func(code, message, fix string) {
			a.findings = append(a.findings, diag.Diagnostic{Severity: diag.Error, Code: code, Object: "MeshConfig", Field: field, Message: message, Fix: fix})
		}
		if c.GetSpiffeBundleUrl() != "" {
			bad("UnsupportedField", "a bundle is not fetched, so its roots do not count", "write its certificates as pem")
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
		a.list = append(a.list, anchor{roots, c.GetCertSigners(), c.GetTrustDomains()})
	}
	return a.list, a.findings
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
	text, err := os.ReadFile(file)
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
// written for the trust domain, and nothing in the chain was revoked. The root of a signer counts for every one, unless
// the mesh configuration has it too and says for which. A root that is written for aliases alone is federated.
func (s *Server) vouches(chain []*x509.Certificate, trustDomain string) (federated bool, err error) {
	if err := s.secure.authority.Revoked().Check(chain); err != nil {
		return false, err
	}
	return s.secure.counts(chain[len(chain)-1], trustDomain, s.trustDomain())
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
	if federated || !written && x.ra != nil && slices.ContainsFunc(x.ra.signerRoots(), root.Equal) {
		return federated, nil
	}
	return false, fmt.Errorf("the certificate's root is not one of trust domain %s", trustDomain)
}
