package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// forbid revokes a right of the server. The returned function grants it again.
func (w *world) forbid(resource string) (back func()) {
	w.T.Helper()
	roles := w.Client().RbacV1().ClusterRoles()
	set := func(change func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule) (was []rbacv1.PolicyRule) {
		w.T.Helper()
		role, err := roles.Get(w.Ctx, "istiod-clusterrole-"+root, metav1.GetOptions{})
		w.Must(err)
		was = role.DeepCopy().Rules
		role.Rules = change(role.Rules)
		_, err = roles.Update(w.Ctx, role, metav1.UpdateOptions{})
		w.Must(err)
		return was
	}
	was := set(func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		for i := range rules {
			rules[i].Resources = slices.DeleteFunc(rules[i].Resources, func(r string) bool { return r == resource })
		}
		return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources) == 0 })
	})
	return func() {
		w.T.Helper()
		set(func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return was })
	}
}

// TestRenewals: with only a certificate, a workload gets the next one while its account is in use: by a pod, a machine
// or a group of machines. Afterwards it is refused with a reason.
func TestRenewals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	between := w.Interpose()
	w.Write(pod("a", "web-0", "web", "n1") + "---" + pod("a", "db-0", "db", "n1"))
	r := w.launch("istiod-0").Ready()
	roots := w.secretRoots()
	own, err := dial(t, r.SecureGRPC, roots, w.token("a", "web", "web-0", "istio-ca")).certificate(w.Ctx, "")
	w.Must(err)
	agent := dial(t, r.SecureGRPC, roots, "", own)
	renewed := func(what string) {
		t.Helper()
		w.Eventually(what, func() error {
			c, err := agent.certificate(w.Ctx, "")
			if err == nil && uri(c) != "spiffe://cluster.local/ns/a/sa/web" {
				t.Errorf("it is of %s", uri(c))
			}
			return err
		})
	}
	refused := func(what string) {
		t.Helper()
		w.Eventually(what, func() error {
			_, err := agent.certificate(w.Ctx, "")
			if status.Code(err) != codes.PermissionDenied ||
				!strings.Contains(err.Error(), "no Pod, WorkloadEntry or WorkloadGroup in namespace a has the service account web") {
				return fmt.Errorf("%w", err)
			}
			return nil
		})
	}
	if _, err := agent.certificate(w.Ctx, ""); err != nil {
		t.Errorf("while its pod runs: %v", err)
	}
	const (
		machine = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: machine, namespace: a}\n" +
			"spec: {address: 10.30.0.1, serviceAccount: web}\n"
		machines = "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: machines, namespace: a}\n" +
			"spec: {template: {serviceAccount: web}}\n"
	)
	gone := func(yaml string) { t.Helper(); w.Must(w.Delete(w.Ctx, []byte(yaml))) }
	gone(pod("a", "web-0", "web", "n1"))
	refused("its pod is gone")
	w.Write(machine)
	renewed("a machine has its account")
	gone(machine)
	refused("the machine is gone")
	w.Write(machines)
	renewed("machines may come with its account")
	gone(machines)
	refused("nobody has its account")
	unknown := func(kind string) {
		t.Helper()
		w.Eventually("nobody knows of what kind "+kind+" there is", func() error {
			_, err := agent.certificate(w.Ctx, "")
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "kind "+kind) {
				return fmt.Errorf("%w", err)
			}
			return nil
		})
	}
	for _, kind := range []*kinds.Kind{kinds.WorkloadEntry, kinds.WorkloadGroup} {
		back := w.forbid(kind.Plural)
		between.Refuse() // rights are checked when a watch begins
		unknown("Pod")
		between.Heal()
		unknown(kind.Name)
		back()
		refused("the server may read " + kind.Plural + " again")
	}
	w.Write(strings.ReplaceAll(pod("a", "web-1", "web", "n1"), "10.20.0.9", "10.20.0.8"))
	renewed("a pod has come")
}
