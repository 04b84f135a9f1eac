package kube

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodes: a pod of a trusted account gets certificates of the accounts that run on its node, and of no others.
func TestNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--set", "env.CA_TRUSTED_NODE_ACCOUNTS=kube-system/ztunnel")
	between := w.Interpose()
	w.Write(pod("kube-system", "ztunnel-1", "ztunnel", "n1") + "---" + pod("kube-system", "ztunnel-2", "ztunnel", "n2") + "---" +
		pod("kube-system", "other-1", "other", "n1") + "---" + pod("a", "web-0", "web", "n1") + "---" + pod("a", "db-0", "db", "n2"))
	r := w.launch("istiod-0").Ready()
	roots := w.secretRoots()
	ask := func(agent workload, identity string) (string, codes.Code) {
		c, err := agent.certificate(w.Ctx, identity)
		if err != nil {
			return "", status.Code(err)
		}
		return uri(c), codes.OK
	}
	const web, db = "spiffe://cluster.local/ns/a/sa/web", "spiffe://cluster.local/ns/a/sa/db"
	one := dial(t, r.SecureGRPC, roots, w.token("kube-system", "ztunnel", "ztunnel-1", "istio-ca"))
	two := dial(t, r.SecureGRPC, roots, w.token("kube-system", "ztunnel", "ztunnel-2", "istio-ca"))
	own, err := one.certificate(w.Ctx, "")
	w.Must(err)
	if uri(own) != "spiffe://cluster.local/ns/kube-system/sa/ztunnel" {
		t.Errorf("its own certificate is of %s", uri(own))
	}
	for what, c := range map[string]struct {
		agent    workload
		identity string
		want     codes.Code
	}{
		"of its node":             {one, web, codes.OK},
		"of another node":         {one, db, codes.PermissionDenied},
		"of its other node":       {two, db, codes.OK},
		"of nobody":               {one, "spiffe://cluster.local/ns/a/sa/nobody", codes.PermissionDenied},
		"of another trust domain": {one, "spiffe://elsewhere/ns/a/sa/web", codes.PermissionDenied},
		"of no workload":          {one, "spiffe://cluster.local/web", codes.InvalidArgument},
		"by an account not listed": {dial(t, r.SecureGRPC, roots, w.token("kube-system", "other", "other-1", "istio-ca")), web,
			codes.PermissionDenied},
		"by a token of no pod": {dial(t, r.SecureGRPC, roots, w.token("kube-system", "ztunnel", "", "istio-ca")), web,
			codes.PermissionDenied},
		"by the node's certificate": {dial(t, r.SecureGRPC, roots, "", own), web, codes.PermissionDenied},
	} {
		name, code := ask(c.agent, c.identity)
		if code != c.want || code == codes.OK && name != c.identity {
			t.Errorf("%s: %v %s, want %v", what, code, name, c.want)
		}
	}

	zero := int64(0)
	w.Must(w.Client().CoreV1().Pods("a").Delete(w.Ctx, "db-0", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	wait := func(what string, agent workload, identity string, want codes.Code) {
		t.Helper()
		w.Eventually(what, func() error {
			if _, code := ask(agent, identity); code != want {
				return fmt.Errorf("%v, want %v", code, want)
			}
			return nil
		})
	}
	wait("a pod that is gone", two, db, codes.PermissionDenied)
	w.Write(pod("a", "db-1", "db", "n1"))
	wait("a pod that has come", one, db, codes.OK)
	between.Refuse()
	wait("nobody knows which pods there are", one, web, codes.Unavailable)
	between.Heal()
	wait("the API server is back", one, web, codes.OK)
}
