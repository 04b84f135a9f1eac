package kube

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestPlugged serves with a plugged-in CA, publishes its roots and revoked certificates, and follows changes of both.
// If the CA's files disappear, it goes on signing.
func TestPlugged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := pki.NewSelfSigned("operator", 24*time.Hour, time.Now())
	must.Succeed(t, err)
	f, err := b.Encode()
	must.Succeed(t, err)
	put := func(name string, text []byte) {
		t.Helper()
		tmp := filepath.Join(t.TempDir(), name)
		must.Succeed(t, os.WriteFile(tmp, text, 0o600))
		must.Succeed(t, os.Rename(tmp, filepath.Join(dir, name)))
	}
	put("ca-key.pem", f.Key)
	put("root-cert.pem", f.Roots)
	put("ca-cert.pem", f.Certificate)
	w := newWorld(t, "--set", "env.ROOT_CA_DIR="+dir+",crlConfigMapName=revoked")
	w.Write(pod("a", "web-0", "web", "n1"))
	r := w.launch("istiod-0").Ready()
	m := w.handed("at first", "a", string(f.Roots))
	agent := dial(t, r.SecureGRPC, w.pool([]byte(m.Data["root-cert.pem"])), w.token("a", "web", "web-0", "istio-ca"))
	c, err := agent.certificate(w.Ctx, "")
	w.Must(err)
	if c.Leaf.Issuer.Organization[0] != "operator" {
		t.Errorf("it is signed by %s", c.Leaf.Issuer)
	}
	if _, err := w.Client().CoreV1().Secrets(root).Get(w.Ctx, "istio-ca-secret", metav1.GetOptions{}); err == nil {
		t.Error("there is a CA beside the operator's")
	}

	// Another root is added, and a certificate is revoked.
	next, err := pki.NewSelfSigned("next", 24*time.Hour, time.Now())
	w.Must(err)
	roots := append(f.Roots, pki.EncodeCertificates(next.Roots...)...)
	put("root-cert.pem", roots)
	w.handed("another root", "a", string(roots))
	key, err := pki.ParseKey(f.Key)
	w.Must(err)
	crl, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: c.Leaf.SerialNumber, RevocationTime: time.Now()}},
	}, b.Certificate, key)
	w.Must(err)
	list := pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: crl})
	put("ca-crl.pem", list)
	w.Eventually("the list is handed out", func() error {
		m, err := w.Client().CoreV1().ConfigMaps("a").Get(w.Ctx, "revoked", metav1.GetOptions{})
		if err == nil && m.Data["ca-crl.pem"] != string(list) {
			err = fmt.Errorf("%q", m.Data)
		}
		return err
	})
	if err := dial(t, r.SecureGRPC, w.pool(roots), "", c).stream(w.Ctx, "web-0", "a"); err == nil {
		t.Error("the revoked certificate is good")
	}

	w.Must(os.RemoveAll(dir))
	_, err = agent.certificate(w.Ctx, "")
	w.Must(err)
}
