package trustdomain

import (
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// fixed is a Mesh whose configuration stays the same.
type fixed struct{ config *mesh.Config }

func (f fixed) Mesh() *mesh.Config { return f.config }

// selfSigned returns a CA.
func selfSigned(t *testing.T) *pki.Bundle {
	t.Helper()
	b, err := pki.NewSelfSigned("example", 24*time.Hour, time.Now())
	must.Succeed(t, err)
	return b
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestRootsOfSigners: a root of a signer of Kubernetes is trusted for the trust domains that the mesh configuration
// names. A root that is only in a file is trusted for each.
func TestRootsOfSigners(t *testing.T) {
	const own = "cluster.local"
	inFile, both, alias, plain := selfSigned(t), selfSigned(t), selfSigned(t), selfSigned(t)
	file := filepath.Join(t.TempDir(), "roots.pem")
	writeFile(t, file, string(pki.EncodeCertificates(inFile.Roots[0])))
	entry := func(b *pki.Bundle, signer string, domains ...string) *meshv1.MeshConfig_CertificateData {
		return &meshv1.MeshConfig_CertificateData{
			CertificateData: &meshv1.MeshConfig_CertificateData_Pem{Pem: string(pki.EncodeCertificates(b.Roots...))},
			CertSigners:     []string{signer}, TrustDomains: domains,
		}
	}
	config := mesh.Default()
	config.CaCertificates = []*meshv1.MeshConfig_CertificateData{entry(both, "one", own, "alias"),
		entry(alias, "one", "alias"), entry(plain, "one")}
	d := New(Options{Mesh: fixed{config}})
	for domain, want := range map[string]bool{own: false, "alias": true, "other": false} {
		if got := d.Federated(domain); got != want {
			t.Errorf("roots for %s are federated: %v", domain, got)
		}
	}
	for _, c := range []struct {
		signer string
		root   *pki.Bundle
		domain string
		want   string
	}{
		{"one", both, own, "own"}, {"one", both, "alias", "own"}, {"one", both, "other", "refused"},
		{"one", alias, "alias", "federated"}, {"one", alias, own, "refused"},
		{"one", plain, own, "own"}, {"one", plain, "alias", "own"},
		{"two", inFile, own, "own"}, {"two", inFile, "alias", "own"}, {"one", inFile, own, "refused"}, {"two", selfSigned(t), own, "refused"},
	} {
		d := New(Options{Mesh: fixed{config}, Issuer: ca.New(ca.Options{}), Signers: []string{c.signer}, SignerRoots: file})
		d.Authority = &authority.Authority{}
		federated, err := d.VerifyTrust(c.root.Roots[:1], c.domain)
		got := map[bool]string{true: "federated", false: "own"}[federated]
		if err != nil {
			got = "refused"
		}
		if got != c.want {
			t.Errorf("signer %s, trust domain %s: %s, want %s", c.signer, c.domain, got, c.want)
		}
	}
}

// TestVouchingRootsOfAliases: a root in the files of a certificate that others issue is trusted for the trust domains
// that the mesh configuration writes beside it, and for each one if it writes none.
func TestVouchingRootsOfAliases(t *testing.T) {
	const own = "cluster.local"
	for _, written := range []bool{false, true} {
		b, dir := selfSigned(t), t.TempDir()
		files := authority.Files{Certificate: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), Roots: filepath.Join(dir, "roots")}
		f, err := b.Encode()
		must.Succeed(t, err)
		for path, text := range map[string][]byte{files.Certificate: f.Certificate, files.Key: f.Key, files.Roots: f.Roots} {
			writeFile(t, path, string(text))
		}
		signs := ca.New(ca.Options{})
		a := authority.New(authority.Options{
			CA: signs, Elsewhere: true, Files: files, FilesVouch: true, Names: func() []string { return nil },
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		must.Succeed(t, a.Load(t.Context()))
		config := mesh.Default()
		if written {
			config.CaCertificates = []*meshv1.MeshConfig_CertificateData{{
				CertificateData: &meshv1.MeshConfig_CertificateData_Pem{Pem: string(f.Roots)}, TrustDomains: []string{"alias"},
			}}
		}
		d := New(Options{Mesh: fixed{config}, Issuer: signs})
		d.Authority = a
		for _, domain := range []string{own, "alias"} {
			federated, err := d.VerifyTrust(b.Roots[:1], domain)
			if refused := err != nil; refused != (written && domain == own) || federated != (written && domain == "alias") {
				t.Errorf("written %v, trust domain %s: federated %v, %v", written, domain, federated, err)
			}
		}
	}
}

// TestExpiredAnchors: an entry of caCertificates whose roots have all expired is a finding at its field.
func TestExpiredAnchors(t *testing.T) {
	good := selfSigned(t).Roots[0]
	later := good.NotAfter.Add(time.Minute)
	old, err := pki.NewSelfSigned("example", 48*time.Hour, time.Now())
	must.Succeed(t, err)
	longer := old.Roots[0]
	list := []anchor{{roots: []*x509.Certificate{good, longer}, field: "caCertificates[0]"},
		{roots: []*x509.Certificate{good}, field: "caCertificates[2]"}}
	if found := expired(list, time.Now()); len(found) > 0 {
		t.Errorf("%v", found)
	}
	if found := expired(list, later); len(found) != 1 || found[0].Field != "caCertificates[2]" ||
		!strings.Contains(found[0].Message, "expired at") {
		t.Errorf("%v", found)
	}
}
