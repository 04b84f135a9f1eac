//go:build compat

package rotation_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// plugged returns what an operator plugs in: a CA two certificates below its root.
func plugged(t *testing.T, now time.Time) *pki.Bundle {
	t.Helper()
	var chain []*x509.Certificate // from the CA to the root
	var files pki.Files
	issuer := (*x509.Certificate)(nil)
	signer, err := pki.GenerateKey()
	must.Succeed(t, err)
	for i, name := range []string{"root", "between", "ca"} {
		key, err := pki.GenerateKey()
		must.Succeed(t, err)
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(240 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}
		if issuer == nil {
			issuer, signer = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), signer)
		must.Succeed(t, err)
		issuer, err = x509.ParseCertificate(der)
		must.Succeed(t, err)
		chain, signer = append([]*x509.Certificate{issuer}, chain...), key
	}
	files.Certificate = pki.EncodeCertificates(chain[0])
	files.Chain, files.Roots = pki.EncodeCertificates(chain[:2]...), pki.EncodeCertificates(chain[2])
	if files.Key, err = pki.EncodeKey(signer); err != nil {
		t.Fatal(err)
	}
	b, err := pki.ParseBundle(files, now)
	must.Succeed(t, err)
	return b
}

// TestOpenSSL has openssl verify what is issued, strictly: for workloads and for the server, by a CA of its own, by one
// that is plugged in, and in each step of a rotation. Without the root that signed it, it fails.
func TestOpenSSL(t *testing.T) {
	now := time.Now()
	o := rotation.Options{Organization: "cluster.local", Lifetime: 240 * time.Hour, GracePercent: 20, MaxTTL: 24 * time.Hour}
	first, err := pki.NewSelfSigned(o.Organization, o.Lifetime, now)
	must.Succeed(t, err)
	type certificate struct {
		what    string
		chain   [][]byte
		purpose []string
		at      time.Time
		roots   []*x509.Certificate
	}
	var all []certificate
	issue := func(what string, b *pki.Bundle, at time.Time) {
		t.Helper()
		c := ca.New(ca.Options{TTL: 24 * time.Hour, MaxTTL: 24 * time.Hour, Now: func() time.Time { return at }})
		c.Use(b)
		key, err := pki.GenerateKey()
		must.Succeed(t, err)
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		must.Succeed(t, err)
		leaf, err := c.Issue(t.Context(), ca.Request{ID: identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"},
			CSR: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})})
		must.Succeed(t, err)
		own, err := c.IssueServer(b, []string{"istiod.istio-system.svc", "127.0.0.1"}, key.Public(), time.Hour)
		must.Succeed(t, err)
		all = append(all,
			certificate{what + ": a workload as a client", leaf.Chain, []string{"-purpose", "sslclient"}, at, b.Roots},
			certificate{what + ": a workload as a server", leaf.Chain, []string{"-purpose", "sslserver"}, at, b.Roots},
			certificate{what + ": the server", own.Chain,
				[]string{"-purpose", "sslserver", "-verify_hostname", "istiod.istio-system.svc"}, at, b.Roots},
			certificate{what + ": the server by its address", own.Chain, []string{"-purpose", "sslserver", "-verify_ip", "127.0.0.1"}, at, b.Roots})
	}
	issue("plugged in", plugged(t, now), now)
	state, steps := rotation.State{Signing: first}, 0
	for at := now; steps < 4; at = state.Due(o) {
		next, stepped, err := state.Step(o, at)
		must.Succeed(t, err)
		if state = next; stepped || at.Equal(now) {
			b, err := state.Bundle(at)
			must.Succeed(t, err)
			issue("step "+strconv.Itoa(steps), b, at)
			steps++
		}
	}
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, text, 0o600))
		return path
	}
	verify := func(c certificate, roots []*x509.Certificate) (string, error) {
		args := []string{
			"verify", "-x509_strict", "-no-CApath", "-no-CAstore", "-attime", strconv.FormatInt(c.at.Add(time.Minute).Unix(), 10),
			"-CAfile", file("roots.pem", pki.EncodeCertificates(roots...)), "-untrusted",
			file("between.pem", slices.Concat(c.chain[1:]...)),
		}
		out, err := exec.CommandContext(t.Context(), "openssl",
			append(append(args, c.purpose...), file("leaf.pem", c.chain[0]))...).CombinedOutput()
		return string(out), err
	}
	other, err := pki.NewSelfSigned("another", o.Lifetime, now)
	must.Succeed(t, err)
	for _, c := range all {
		if out, err := verify(c, c.roots); err != nil || !strings.HasSuffix(out, "leaf.pem: OK\n") {
			t.Errorf("%s: %s, %v", c.what, out, err)
		}
		if out, err := verify(c, other.Roots); err == nil {
			t.Errorf("%s: another root is enough: %s", c.what, out)
		}
	}
	if len(all) != 20 {
		t.Errorf("%d certificates", len(all))
	}
}
