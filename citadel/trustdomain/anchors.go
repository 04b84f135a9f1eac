package trustdomain

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Bundles fetches the SPIFFE bundles of other trust domains from URLs.
type Bundles interface {
	// Want sets the URLs to fetch. It does not wait.
	Want(urls []string)
	// Roots returns the roots in the last good bundle of a URL; nil if there is none.
	Roots(url string) []*x509.Certificate
	// Failure returns why the last fetch of a URL failed, and when the failures began. The reason is "" if it did not
	// fail.
	Failure(url string) (why string, since time.Time)
}

// anchor is one entry of the mesh configuration's caCertificates.
type anchor struct {
	field                 string
	url                   string // URL of a bundle with the roots; "" if the entry has them inline
	roots                 []*x509.Certificate
	signers, trustDomains []string // scope of the roots; empty stands for every signer, and for the mesh's own trust domains
}

// parse returns the valid entries of a mesh configuration, and a finding for each other one.
func (d *Domains) parse(m *mesh.Config) (list []anchor, findings []diag.Diagnostic) {
	for i, c := range m.GetCaCertificates() {
		a := anchor{field: fmt.Sprintf("caCertificates[%d]", i), url: c.GetSpiffeBundleUrl(),
			signers: c.GetCertSigners(), trustDomains: c.GetTrustDomains()}
		bad := func(message, fix string) {
			findings = append(findings, diag.Diagnostic{
				Severity: diag.Error, Code: "InvalidCertificates", Object: "MeshConfig",
				Field: a.field, Message: message + "; its roots are not trusted", Fix: fix,
			})
		}
		if a.url == "" {
			var err error
			if a.roots, err = pki.ParseCertificates([]byte(c.GetPem())); err == nil && len(a.roots) == 0 {
				err = errors.New("it is empty")
			}
			if err != nil {
				bad("pem: "+err.Error(), "write certificates as PEM")
				continue
			}
		} else if !strings.HasPrefix(a.url, "https://") || d.o.Bundles == nil {
			bad("spiffeBundleUrl: bundles are fetched over https only", "write a URL that begins with https://, or its certificates as pem")
			continue
		}
		list = append(list, a)
	}
	return list, findings
}

// current returns the entries of the mesh configuration in force, and its findings. It requests the bundles of these
// entries.
func (d *Domains) current() ([]anchor, []diag.Diagnostic) {
	m := d.o.Mesh.Mesh()
	d.mu.Lock()
	defer d.mu.Unlock()
	if m != d.parsed && m != nil {
		d.parsed = m
		d.list, d.findings = d.parse(m)
		if d.o.Bundles != nil {
			var urls []string
			for _, a := range d.list {
				if a.url != "" && !slices.Contains(urls, a.url) {
					urls = append(urls, a.url)
				}
			}
			d.o.Bundles.Want(urls)
		}
	}
	return d.list, d.findings
}

// fetched returns the entries with their fetched roots, without entries that have none yet.
func (d *Domains) fetched(list []anchor) []anchor {
	var out []anchor
	for _, a := range list {
		if a.url != "" {
			a.roots = d.o.Bundles.Roots(a.url)
		}
		if a.roots != nil {
			out = append(out, a)
		}
	}
	return out
}

// anchors returns the entries in force.
func (d *Domains) anchors() []anchor {
	list, _ := d.current()
	return d.fetched(list)
}

// Findings returns the findings of the mesh configuration's caCertificates.
func (d *Domains) Findings() []diag.Diagnostic {
	list, findings := d.current()
	findings = slices.Clone(findings)
	for _, a := range list {
		if a.url == "" {
			continue
		}
		why, since := d.o.Bundles.Failure(a.url)
		if why == "" {
			continue
		}
		trusted := "its roots are not trusted"
		if d.o.Bundles.Roots(a.url) != nil {
			trusted = "its last roots stay in force"
		}
		findings = append(findings, diag.Diagnostic{
			Severity: diag.Warning, Code: "FactFailing", Object: "MeshConfig", Field: a.field + ".spiffeBundleUrl",
			Message: fmt.Sprintf("failed to fetch the bundle since %s: %s; %s", since.UTC().Format(time.RFC3339), why, trusted),
			Fix:     "make the bundle reachable from this server; it is fetched again by itself",
		})
	}
	return append(findings, expired(d.fetched(list), time.Now())...)
}

// expired returns a finding for each entry all of whose roots have expired.
func expired(list []anchor, now time.Time) (found []diag.Diagnostic) {
	for _, a := range list {
		last := slices.MaxFunc(a.roots, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
		if now.After(last) {
			found = append(found, diag.Diagnostic{
				Severity: diag.Error, Code: "InvalidCertificates", Object: "MeshConfig", Field: a.field,
				Message: "the last of its roots expired at " + last.UTC().Format(time.RFC3339) + ": no certificate is trusted by them",
				Fix:     "write new roots, or remove the entry",
			})
		}
	}
	return found
}
