package kube

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// signer signs approved requests, as cert-manager would.
type signer struct {
	w    *world
	name string
	key  *pki.Bundle
	// another is a name that it signs instead of the requested one. Optional.
	another string
}

// sign signs one request, from its text.
func (s *signer) sign(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	b, _ := pem.Decode(r.Spec.Request)
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		return nil, err
	}
	leaf := pki.Leaf{Key: csr.PublicKey, TTL: time.Duration(*r.Spec.ExpirationSeconds) * time.Second, Names: csr.DNSNames}
	if len(csr.URIs) > 0 {
		leaf.URI, leaf.Names = csr.URIs[0].String(), nil
	}
	if s.another != "" && leaf.URI != "" {
		leaf.URI = s.another
	}
	der, _, err := s.key.Sign(leaf, time.Now())
	return pki.EncodeCertificate(der), err
}

// run signs until ctx ends.
func (s *signer) run(ctx context.Context) {
	requests := s.w.Client().CertificatesV1().CertificateSigningRequests()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, r := range list.Items {
			if r.Spec.SignerName != s.name || len(r.Status.Certificate) > 0 || len(r.Status.Conditions) == 0 {
				continue
			}
			if r.Status.Certificate, err = s.sign(&r); err == nil {
				_, _ = requests.UpdateStatus(ctx, &r, metav1.UpdateOptions{}) // it may be gone
			}
		}
	}
}

// TestSigners: signers of Kubernetes sign the certificates of workloads and of the server. A certificate with another
// name is not passed on, and no request is left behind.
func TestSigners(t *testing.T) {
	t.Parallel()
	var all []*signer
	mesh := "meshConfig:\n  caCertificates:\n"
	for _, name := range []string{"issuers.example/mesh", "issuers.example/own", "issuers.example/bad"} {
		b, err := pki.NewSelfSigned(name, 24*time.Hour, time.Now())
		must.Succeed(t, err)
		all = append(all, &signer{name: name, key: b})
		text := strings.ReplaceAll(strings.TrimSpace(string(pki.EncodeCertificates(b.Roots...))), "\n", "\n      ")
		mesh += fmt.Sprintf("  - certSigners: [%s]\n    pem: |\n      %s\n", name, text)
	}
	own, db := all[1], "spiffe://cluster.local/ns/a/sa/db"
	all[2].another = db
	values := filepath.Join(t.TempDir(), "values.yaml")
	must.Succeed(t, os.WriteFile(values, []byte(mesh), 0o600))
	w := newWorld(t, "-f", values, "--set",
		"env.EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API,env.K8S_SIGNER=issuers.example/mesh,env.CERT_SIGNER_DOMAIN=issuers.example,"+
			"global.pilotCertProvider=k8s.io/issuers.example/own")
	ctx, cancel := context.WithCancel(w.Ctx)
	t.Cleanup(cancel)
	for _, s := range all {
		s.w = w
		go s.run(ctx)
	}
	w.Write(pod("a", "web-0", "web", "n1"))
	r := w.launch("istiod-0").Ready()
	m := w.handed("the roots of the server's own signer", "a", string(pki.EncodeCertificates(own.key.Roots...)))
	roots := w.pool([]byte(m.Data["root-cert.pem"]))
	const web = "spiffe://cluster.local/ns/a/sa/web"
	agent := dial(t, r.SecureGRPC, roots, w.token("a", "web", "web-0", "istio-ca"))
	agent.asks = []string{web}
	c, err := agent.certificate(w.Ctx, "")
	w.Must(err)
	if uri(c) != web || c.Leaf.Issuer.Organization[0] != "issuers.example/mesh" {
		t.Errorf("the certificate of %s is signed by %s", uri(c), c.Leaf.Issuer)
	}
	w.Must(dial(t, r.SecureGRPC, roots, "", c).stream(w.Ctx, "web-0", "a"))
	agent.signer = "own"
	if c, err = agent.certificate(w.Ctx, ""); err != nil || c.Leaf.Issuer.Organization[0] != "issuers.example/own" {
		t.Errorf("by another signer: %v", err)
	}
	agent.signer = "bad"
	if _, err := agent.certificate(w.Ctx, ""); status.Code(err) != codes.Internal {
		t.Errorf("by a signer that certifies another name: %v", err)
	}
	agent.signer, agent.asks = "", []string{db}
	if _, err := agent.certificate(w.Ctx, ""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("for another name: %v", err)
	}

	// A certificate with the right name from an unknown CA, and one from a root that belongs to no signer.
	stranger, err := pki.NewSelfSigned("stranger", time.Hour, time.Now())
	w.Must(err)
	forged, err := forge(stranger, web)
	w.Must(err)
	if err := dial(t, r.SecureGRPC, roots, "", forged).stream(w.Ctx, "web-0", "a"); err == nil {
		t.Error("a stranger's certificate is good")
	}
	list, err := w.Client().CertificatesV1().CertificateSigningRequests().List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	if len(list.Items) != 0 {
		t.Errorf("%d requests are left", len(list.Items))
	}
	if _, err := w.Client().CoreV1().Secrets(root).Get(w.Ctx, "istio-ca-secret", metav1.GetOptions{}); err == nil {
		t.Error("there is a CA beside the signers")
	}
}
