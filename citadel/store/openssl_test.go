//go:build compat

package store_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestPluggedByOpenSSL plugs in a CA as operators make it: a root and an intermediate with RSA keys in either form, the
// chain with the root at its end. OpenSSL verifies what it signs, for keys of both sorts.
func TestPluggedByOpenSSL(t *testing.T) {
	for form, flags := range map[string][]string{"PRIVATE KEY": nil, "RSA PRIVATE KEY": {"-traditional"}} {
		t.Run(form, func(t *testing.T) {
			dir := t.TempDir()
			openssl := func(args ...string) {
				t.Helper()
				c := exec.CommandContext(t.Context(), "openssl", args...)
				c.Dir = dir
				if out, err := c.CombinedOutput(); err != nil {
					t.Fatalf("openssl %s: %v: %s", strings.Join(args, " "), err, out)
				}
			}
			read := func(name string) []byte {
				t.Helper()
				text, err := os.ReadFile(filepath.Join(dir, name))
				must.Succeed(t, err)
				return text
			}
			write := func(name string, text []byte) {
				t.Helper()
				must.Succeed(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
			}
			key := func(name string) { openssl(append(append([]string{"genrsa"}, flags...), "-out", name, "2048")...) }
			key("root-key.pem")
			openssl("req", "-x509", "-new", "-sha256", "-key", "root-key.pem", "-days", "3650", "-subj", "/O=Istio/CN=Root CA",
				"-addext", "basicConstraints=critical,CA:true", "-addext",
				"keyUsage=critical,digitalSignature,nonRepudiation,keyEncipherment,keyCertSign", "-out", "root-cert.pem")
			key("ca-key.pem")
			if !strings.HasPrefix(string(read("ca-key.pem")), "-----BEGIN "+form) {
				t.Fatalf("the key is of another form")
			}
			openssl("req", "-new", "-sha256", "-key", "ca-key.pem", "-subj", "/O=Istio/CN=Intermediate CA/L=cluster1", "-out", "ca.csr")
			write("ca.conf", []byte("basicConstraints = critical, CA:true, pathlen:0\n"+
				"keyUsage = critical, digitalSignature, nonRepudiation, keyEncipherment, keyCertSign\nsubjectAltName = DNS:istiod.istio-system.svc\n"))
			openssl("x509", "-req", "-sha256", "-days", "730", "-CA", "root-cert.pem", "-CAkey",
				"root-key.pem", "-CAcreateserial", "-in", "ca.csr", "-extfile", "ca.conf", "-out", "ca-cert.pem")
			write("cert-chain.pem", append(read("ca-cert.pem"), read("root-cert.pem")...))

			p, err := store.ReadPlugged(dir, time.Now())
			if err != nil || p == nil {
				t.Fatalf("%v, %v", p, err)
			}
			issuer := ca.New(ca.Options{TTL: time.Hour, MaxTTL: time.Hour})
			issuer.Use(p.Bundle)
			small, err := pki.GenerateKey()
			must.Succeed(t, err)
			large, err := rsa.GenerateKey(rand.Reader, 2048)
			must.Succeed(t, err)
			for what, private := range map[string]crypto.Signer{"ECDSA": small, "RSA": large} {
				csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
				must.Succeed(t, err)
				issued, err := issuer.Issue(t.Context(), ca.Request{
					ID:  identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"},
					CSR: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}),
				})
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				last := len(issued.Chain) - 1
				if last < 2 || string(issued.Chain[last]) != string(pki.EncodeCertificates(p.Bundle.Roots...)) {
					t.Errorf("%s: a chain of %d: want the leaf, the intermediate and the root", what, last+1)
				}
				write("leaf.pem", issued.Chain[0])
				var between []byte
				for _, text := range issued.Chain[1:last] {
					between = append(between, text...)
				}
				write("between.pem", between)
				openssl("verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "root-cert.pem", "-untrusted", "between.pem", "leaf.pem")
			}
		})
	}
}
