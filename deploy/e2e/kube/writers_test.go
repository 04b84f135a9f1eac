package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
)

// The environment that makes a replica of this test binary.
const (
	replicaVar    = "WRITERS_TEST_REPLICA"
	kubeconfigVar = "WRITERS_TEST_KUBECONFIG"
)

// replica takes part in an election, and writes as often as it can while it leads. It reports its state on standard
// output, until it is killed.
func replica(name, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	lease, err := leader.New(leader.Options{
		Client: config, Namespace: "istio-system", Name: "istio-leader", Identity: name, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	guarded := rest.CopyConfig(config)
	guarded.Wrap(lease.Guard)
	client, err := rest.HTTPClientFor(guarded)
	if err != nil {
		return err
	}
	lease.Run(context.Background(), func(ctx context.Context) {
		fmt.Println("leading")
		defer fmt.Println("lost")
		for n := 0; ctx.Err() == nil; n++ {
			writeMap(ctx, client, config.Host, name, n)
			time.Sleep(10 * time.Millisecond)
		}
	})
	return nil
}

// writeMap changes the replica's ConfigMap, if it may.
func writeMap(ctx context.Context, client *http.Client, host, name string, n int) {
	url := host + "/api/v1/namespaces/istio-system/configmaps/" + name
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, strings.NewReader(fmt.Sprintf(`{"data":{"n":"%d"}}`, n)))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	if resp, err := client.Do(r); err == nil {
		_ = resp.Body.Close()
	}
}

const writerRights = `
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: vm}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: istiod}
rules:
- {apiGroups: [networking.istio.io], resources: [workloadentries], verbs: [get, create, patch, delete]}
- {apiGroups: [networking.istio.io], resources: [workloadentries/status], verbs: [patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
- {apiGroups: [""], resources: [configmaps], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: istiod}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: istiod}
subjects: [{kind: ServiceAccount, name: istiod, namespace: istio-system}]
`

// account returns a cluster, and the access of a control plane's ServiceAccount with the rights that writers need.
func account(t *testing.T) (*installed.World, cluster.Access) {
	t.Helper()
	w := installed.Empty(t)
	w.Write(writerRights)
	access, err := w.ServiceAccount(w.Ctx, root, "istiod")
	w.Must(err)
	return w, access
}
