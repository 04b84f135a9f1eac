package kube

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// TestCertifiedByOthers installs the chart with another authority for workloads and the server, as with istio-csr. The
// server shows the given certificate, and authenticates callers with a certificate of the same issuer or a token. It
// issues no certificates and does not write the ConfigMap with the roots.
func TestCertifiedByOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, private, trusted := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "root-cert.pem")
	w := newWorld(t, "--set", "pilot.env.ENABLE_CA_SERVER=false,global.caAddress=issuer.example:443", "--set-json",
		// no kubelet mounts them here
		fmt.Sprintf(`extraContainerArgs=["--tlsCertFile=%s","--tlsKeyFile=%s","--caCertFile=%s"]`, cert, private, trusted))
	w.Write(pod("a", "web-0", "web", "n1"))
	b, err := pki.NewSelfSigned("another", 24*time.Hour, time.Now())
	w.Must(err)
	key, err := pki.GenerateKey()
	w.Must(err)
	der, _, err := b.Sign(pki.Leaf{Names: []string{"istiod.istio-system.svc"}, Key: key.Public(), TTL: time.Hour}, time.Now())
	w.Must(err)
	leaf, err := x509.ParseCertificate(der)
	w.Must(err)
	text, err := pki.EncodeKey(key)
	w.Must(err)
	roots := pki.EncodeCertificates(b.Roots...)
	for name, text := range map[string][]byte{cert: pki.EncodeCertificates(leaf), private: text, trusted: roots} {
		w.Must(os.WriteFile(name, text, 0o600))
	}
	r := w.launch("istiod-0").Ready()

	byToken := dial(t, r.SecureGRPC, w.pool(roots), w.token("a", "web", "web-0", "istio-ca"))
	w.Eventually("a stream by a token", func() error { return byToken.stream(w.Ctx, "web-0", "a") })
	// the API server verifies it
	w.Must(dial(t, r.SecureGRPC, w.pool(roots), w.token("a", "web", "", "istio-ca")).stream(w.Ctx, "web-0", "a"))
	own, err := forge(b, "spiffe://cluster.local/ns/a/sa/web")
	w.Must(err)
	w.Must(dial(t, r.SecureGRPC, w.pool(roots), "", own).stream(w.Ctx, "web-0", "a"))
	if err := dial(t, r.SecureGRPC, w.pool(roots), "").stream(w.Ctx, "web-0", "a"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a proof: %v", err)
	}
	if _, err := byToken.certificate(w.Ctx, ""); status.Code(err) != codes.Unimplemented {
		t.Errorf("a certificate: %v", err)
	}
	w.Eventually("the injection webhook is called by these roots", func() error {
		c, err := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(w.Ctx, "istio-sidecar-injector", metav1.GetOptions{})
		if err == nil && !bytes.Contains(c.Webhooks[0].ClientConfig.CABundle, roots) {
			err = fmt.Errorf("caBundle %q", c.Webhooks[0].ClientConfig.CABundle)
		}
		return err
	})
	if _, err := w.Client().CoreV1().ConfigMaps("a").Get(w.Ctx, "istio-ca-root-cert", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(errors.Join(errors.New("there is a ConfigMap that others were to write"), err))
	}
	if _, err := w.Client().CoreV1().Secrets(root).Get(w.Ctx, "istio-ca-secret", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(errors.Join(errors.New("there is a CA"), err))
	}
}
