package upgrade

import (
	"bytes"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestIstiod follows docs/migrate.md: from Istio's istiod to a revision of this control plane, which then is alone, and
// back to istiod. The CA in the Secret stays.
func TestIstiod(t *testing.T) {
	w := start(t, "base", "istio")
	w.rolledOut(install.Namespace, "istiod")
	w.apply(fmt.Sprintf(application, enabled) + "---" + fmt.Sprintf(routes, 0))
	w.launch("theirs")
	theirs := set{"theirs", "istiod"}
	w.inForce("istiod", theirs)
	ca := w.ca()

	w.install("lite", "lite")
	w.rolledOut(install.Namespace, "istiod-lite")
	w.label("istio.io/rev: lite")
	w.launch("ours")
	ours := set{"ours", "istiod-lite"}
	w.inForce("beside istiod", theirs, ours)
	w.leave("theirs")
	w.install("base", "base-lite") // the default revision, which validates objects
	w.uninstall("istiod")
	w.inForce("without istiod", ours)

	w.install("istiod", "istio-back")
	w.rolledOut(install.Namespace, "istiod-back")
	w.label("istio.io/rev: back")
	w.launch("back")
	back := set{"back", "istiod-back"}
	w.inForce("istiod beside this control plane", ours, back)
	w.leave("ours")
	w.install("base", "base-back")
	w.uninstall("lite")
	w.inForce("istiod again", back)
	if !bytes.Equal(ca, w.ca()) {
		t.Error("the CA is another one")
	}
}

// label gives the namespace of the applications another label for injection.
func (w *world) label(label string) {
	w.t.Helper()
	w.apply(fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {%s}}\n", label))
}

// ca returns the certificate and the key of the CA.
func (w *world) ca() []byte {
	w.t.Helper()
	s, err := w.Client().CoreV1().Secrets(install.Namespace).Get(w.t.Context(), "istio-ca-secret", metav1.GetOptions{})
	must.Succeed(w.t, err)
	return append(s.Data["ca-cert.pem"], s.Data["ca-key.pem"]...)
}
