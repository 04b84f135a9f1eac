package writers

import (
	"context"
	"flag"
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

// program is the binary under test.
var program string

func TestMain(m *testing.M) {
	if name := os.Getenv(replicaVar); name != "" {
		if err := replica(name, os.Getenv(kubeconfigVar)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Servers that the tests start: nothing of the surroundings, and no long wait for proxies to come back.
	for name, value := range map[string]string{"POD_NAME": "", "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD": "1s"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	// All tests run at a time, unless the command line says otherwise, for they wait more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	installed.Main(m, &program)
}

// replica stands for election, and writes as often as it can while it leads. It says so on standard output, until it is
// killed.
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
			write(ctx, client, config.Host, name, n)
			time.Sleep(10 * time.Millisecond)
		}
	})
	return nil
}

// write changes the replica's ConfigMap, if it may.
func write(ctx context.Context, client *http.Client, host, name string, n int) {
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

const rights = `
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

// start returns a cluster and a client with the rights of the control plane's ServiceAccount.
func start(t *testing.T) (context.Context, *cluster.Cluster, cluster.Access) {
	t.Helper()
	w := installed.Empty(t)
	ctx, c := w.Ctx, w.Cluster
	if err := c.Apply(ctx, []byte(rights)); err != nil {
		t.Fatal(err)
	}
	access, err := c.ServiceAccount(ctx, "istio-system", "istiod")
	if err != nil {
		t.Fatal(err)
	}
	return ctx, c, access
}

// eventually waits until ok returns no error.
func eventually(ctx context.Context, t *testing.T, what string, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("never %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
