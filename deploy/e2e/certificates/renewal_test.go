package certificates

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRenewals: by a certificate alone a workload gets the next one while something may run as its account: a pod, a
// machine, or a group of machines. Afterwards it is told why it gets none.
func TestRenewals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(pod("a", "web-0", "web", "n1") + "---" + pod("a", "db-0", "db", "n1"))
	r := w.launch("istiod-0").Ready()
	roots := w.secretRoots()
	own, err := connect(t, r.SecureGRPC, roots, w.token("a", "web", "web-0", "istio-ca")).certificate(w.Ctx, "")
	w.Must(err)
	agent := connect(t, r.SecureGRPC, roots, "", own)
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
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "no Pod, WorkloadEntry or WorkloadGroup in namespace a has the service account web") {
				return fmt.Errorf("%w", err)
			}
			return nil
		})
	}
	if _, err := agent.certificate(w.Ctx, ""); err != nil {
		t.Errorf("while its pod runs: %v", err)
	}
	const (
		machine  = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: machine, namespace: a}\nspec: {address: 10.30.0.1, serviceAccount: web}\n"
		machines = "apiVersion: networking.istio.io/v1\nkind: WorkloadGroup\nmetadata: {name: machines, namespace: a}\nspec: {template: {serviceAccount: web}}\n"
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
	w.KillAPIServer()
	w.Eventually("nobody knows which pods there are", func() error {
		if _, err := agent.certificate(w.Ctx, ""); status.Code(err) != codes.Unavailable {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	w.Must(w.StartAPIServer(w.Ctx))
	w.Write(strings.Replace(pod("a", "web-1", "web", "n1"), "10.20.0.9", "10.20.0.8", -1))
	renewed("a pod has come")
}
