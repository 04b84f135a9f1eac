package kube

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
)

// world is a cluster with the charts installed.
type world struct{ *installed.World }

// newWorld starts a cluster and installs the charts, with more arguments for the chart istiod.
func newWorld(t *testing.T, set ...string) *world {
	t.Helper()
	return &world{installed.Start(t, set...)}
}

// pod returns a running Pod, as the API server would have it.
func pod(namespace, name, account, node string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec: {nodeName: %s, serviceAccountName: %s, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 10.20.0.9, podIPs: [{ip: 10.20.0.9}], conditions: [{type: Ready, status: "True"}]}
`, name, namespace, node, account)
}

// launch starts a server of the chart.
func (w *world) launch(name string) *installed.Replica {
	w.T.Helper()
	return w.Launch(program, "istiod", name, "--drainDuration=0s", "--log_output_level=default:info,ca:debug,ads:debug")
}

// secretRoots returns the roots of the CA in its Secret.
func (w *world) secretRoots() *x509.CertPool {
	w.T.Helper()
	s, err := w.Client().CoreV1().Secrets(root).Get(w.Ctx, "istio-ca-secret", metav1.GetOptions{})
	w.Must(err)
	return w.pool(s.Data["root-cert.pem"])
}

func (w *world) pool(text []byte) *x509.CertPool {
	w.T.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		w.T.Fatalf("no roots in %q", text)
	}
	return pool
}

// token returns a token for an audience, as for a kubelet. It is bound to a pod if that is not empty.
func (w *world) token(namespace, account, podName, audience string) string {
	w.T.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if podName != "" {
		p, err := w.Client().CoreV1().Pods(namespace).Get(w.Ctx, podName, metav1.GetOptions{})
		w.Must(err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}
	}
	answer, err := w.Client().CoreV1().ServiceAccounts(namespace).CreateToken(w.Ctx, account, request, metav1.CreateOptions{})
	w.Must(err)
	return answer.Status.Token
}

// forged returns a token with other claims, signed with the key of this API server.
func (w *world) forged(token string, change func(claims map[string]any)) string {
	w.T.Helper()
	signed, err := resign(token, filepath.Join(w.Dir(), "serviceaccounts.key"), change)
	w.Must(err)
	return signed
}
