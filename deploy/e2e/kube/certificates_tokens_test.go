package kube

import (
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
)

// TestTokens gets a certificate for a token and a stream for the certificate, on two replicas that start together and
// share one CA. Other tokens get neither.
func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	between := w.Interpose()
	w.Write(pod("a", "web-0", "web", "n1") + "---" + pod("a", "web-1", "web", "n1") + "---" + pod("b", "db-0", "db", "n1"))
	one, two := w.launch("istiod-0"), w.launch("istiod-1")
	one.Ready()
	two.Ready()
	roots := w.secretRoots()
	good := w.token("a", "web", "web-0", "istio-ca")

	var own tls.Certificate
	for _, r := range []*installed.Replica{one, two} {
		agent := dial(t, r.SecureGRPC, roots, good)
		c, err := agent.certificate(w.Ctx, "")
		w.Must(err)
		if uri(c) != "spiffe://cluster.local/ns/a/sa/web" {
			t.Errorf("the certificate is that of %s", uri(c))
		}
		w.Must(agent.stream(w.Ctx, "web-0", "a"))
		if own.Leaf != nil { // of the other replica
			w.Must(dial(t, r.SecureGRPC, roots, "", own).stream(w.Ctx, "web-0", "a"))
		}
		own = c
		if err := dial(t, r.SecureGRPC, roots, "", own).stream(w.Ctx, "db-0", "b"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a stream of another namespace: %v", err)
		}
	}

	for what, err := range map[string]error{
		"of another pod":     dial(t, one.SecureGRPC, roots, good).stream(w.Ctx, "web-1", "a"),
		"of another cluster": dial(t, one.SecureGRPC, roots, good).streamOf(w.Ctx, "web-0", "a", "elsewhere"),
	} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("a stream %s: %v", what, err)
		}
	}

	elsewhere := &world{w.Another()}
	elsewhere.Write(pod("a", "web-0", "web", "n1"))
	gone := w.token("a", "web", "web-1", "istio-ca")
	w.Must(dial(t, one.SecureGRPC, roots, gone).stream(w.Ctx, "web-1", "a"))
	zero := int64(0)
	w.Must(w.Client().CoreV1().Pods("a").Delete(w.Ctx, "web-1", metav1.DeleteOptions{GracePeriodSeconds: &zero}))

	bound := func(changes map[string]any) func(map[string]any) {
		return func(claims map[string]any) {
			for k, v := range changes {
				claims[k] = v
			}
		}
	}
	for what, token := range map[string]string{
		"no token":               "",
		"another audience":       w.token("a", "web", "web-0", "vault"),
		"the API server's own":   w.token("a", "web", "web-0", "https://kubernetes.default.svc"),
		"expired":                w.forged(good, bound(map[string]any{"exp": time.Now().Add(-2 * time.Minute).Unix()})),
		"another pod's UID":      w.forged(good, func(c map[string]any) { podOf(c)["uid"] = "1" }),
		"no pod's":               w.forged(good, func(c map[string]any) { podOf(c)["name"] = "web-9" }),
		"another account":        w.forged(good, bound(map[string]any{"sub": "system:serviceaccount:a:db"})),
		"another cluster's":      elsewhere.token("a", "web", "web-0", "istio-ca"),
		"another cluster's, old": elsewhere.token("a", "web", "", "istio-ca"),
		"of a pod that is gone":  gone,
	} {
		agent := dial(t, one.SecureGRPC, roots, token)
		w.Eventually(what+" is refused", func() error { // the server learns of the deletion a little later
			if err := agent.stream(w.Ctx, "web-0", "a"); status.Code(err) != codes.Unauthenticated {
				return fmt.Errorf("a stream: %w", err)
			}
			return nil
		})
		if _, err := agent.certificate(w.Ctx, ""); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: a certificate: %v", what, err)
		}
	}

	// The API server verifies a token that is bound to no pod.
	loose := dial(t, one.SecureGRPC, roots, w.token("a", "web", "", "istio-ca"))
	_, err := loose.certificate(w.Ctx, "")
	w.Must(err)
	fresh := dial(t, one.SecureGRPC, roots, w.token("b", "db", "", "istio-ca"))
	between.Refuse()
	if _, err := dial(t, one.SecureGRPC, roots, good).certificate(w.Ctx, ""); err != nil {
		t.Errorf("while the API server is away, by a token that was verified here: %v", err)
	}
	if _, err := fresh.certificate(w.Ctx, ""); status.Code(err) != codes.Unavailable {
		t.Errorf("while the API server is away, by a token that it has to judge: %v", err)
	}
	between.Heal()
	w.Eventually("the API server judges again", func() error {
		_, err := fresh.certificate(w.Ctx, "")
		return err
	})
}

func podOf(claims map[string]any) map[string]any {
	return claims["kubernetes.io"].(map[string]any)["pod"].(map[string]any)
}
