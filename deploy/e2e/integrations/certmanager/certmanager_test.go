package certmanager

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/compat"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestCertManager installs the control plane before cert-manager, so that it has to wait for its own certificate.
func TestCertManager(t *testing.T) {
	w := start(t)
	w.Write(program)
	w.addCA(t, "cert-manager", "mesh-ca")
	w.addCA(t, "istio-system", "workloads-ca")
	w.Ready("cert-manager", "cert-manager")
	w.Ready("istio-system", "istiod")
	t.Run("workloads", func(t *testing.T) { workloads(t, w) })
	w.Write(w.File("istio-ingress.yaml"))
	w.Write(ingress)
	w.Ready("istio-ingress", "istio-ingress")
	addr := w.LoadBalancer("istio-ingress", "istio-ingress")
	suite.Eventually(t, "the Secret of the Gateway", func() bool {
		_, err := w.Client().CoreV1().Secrets("istio-ingress").Get(w.ctx, "web-tls", metav1.GetOptions{})
		return err == nil
	})
	web := site{addr, "web.example.com", w.roots(t, "istio-ingress", "shop-ca", "tls.crt")}
	t.Run("gateway", func(t *testing.T) { renewal(t, w, web) })
	t.Run("gateway API", func(t *testing.T) {
		w.Write(annotated)
		site{w.LoadBalancer("istio-ingress", "api-istio"), "api.example.com", web.roots}.served(t)
	})
	if !t.Failed() {
		must.Succeed(t, compat.CheckProject("cert-manager", binaries.Version("cert-manager"),
			"its controllers make Secrets of Gateways of both APIs, and its issuers sign all certificates of the mesh by CertificateSigningRequests",
			"works"))
	}
}

// workloads checks the certificates of the mesh.
func workloads(t *testing.T, w *world) {
	w.Write(shop)
	w.Ready("shop", "client")
	suite.Eventually(t, "the control plane tells why an issuer refuses", func() bool {
		return strings.Contains(w.Log("istio-system", "istiod"), "Requester may not reference Namespaced Issuer istio-system/workloads")
	})
	w.Write(reference)
	w.Ready("shop", "server")
	for app, secret := range map[string]string{"client": "mesh-ca", "server": "workloads-ca"} {
		leaf, err := w.shown(app)
		must.Succeed(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(w.File(secret + ".crt")))
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
			t.Errorf("the certificate of %s: %v", app, err)
		}
		if want := "spiffe://cluster.local/ns/shop/sa/" + app; len(leaf.URIs) != 1 || leaf.URIs[0].String() != want {
			t.Errorf("the certificate of %s has the names %v", app, leaf.URIs)
		}
	}
	suite.Eventually(t, "mutual TLS between workloads with certificates of both issuers", func() bool {
		out, err := w.Exec("shop", "client", "client", "--count=20", "http://server/")
		return err == nil && strings.Count(out, "StatusCode=200") == 20 && strings.Contains(out, "URI=spiffe://cluster.local/ns/shop/sa/client")
	})
	suite.Eventually(t, "no request is left", func() bool {
		list, err := w.Client().CertificatesV1().CertificateSigningRequests().List(w.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

// renewal renews the certificate of a Gateway three times while clients connect.
func renewal(t *testing.T, w *world, web site) {
	before := web.served(t).SerialNumber.String()
	now, stop := web.visit(t)
	for range 3 {
		w.renew(t, "istio-ingress", "web")
		suite.Eventually(t, "the next certificate is served", func() bool {
			serials := now().serials
			return len(serials) > 0 && serials[len(serials)-1] != before
		})
		serials := now().serials
		before = serials[len(serials)-1]
	}
	settled := now().count + 50
	suite.Eventually(t, "more connections", func() bool { return now().count >= settled })
	all := stop()
	if len(all.errs) > 0 {
		t.Errorf("%d of %d connections failed: %v", len(all.errs), all.count, all.errs[0])
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(all.serials))); len(distinct) != 4 || len(all.serials) != 4 {
		t.Errorf("the certificates took turns: %v", all.serials)
	}
}
