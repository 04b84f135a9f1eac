package kube

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// machine opens the stream of a workload that registers, and keeps it open until the test ends.
func machine(w *installed.World, address, ip string) {
	w.T.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.Must(err)
	w.T.Cleanup(func() { _ = conn.Close() })
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(w.Ctx)
	w.Must(err)
	meta, err := structpb.NewStruct(
		map[string]any{"NAMESPACE": "vm", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip, "AUTO_REGISTER_GROUP": "reviews"})
	w.Must(err)
	node := &corev3.Node{Id: "sidecar~" + ip + "~m.vm~vm.svc.cluster.local", Metadata: meta}
	w.Must(ads.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: envoy.ClusterType}))
	_, err = ads.Recv()
	w.Must(err)
}

// outside returns a cluster with a WorkloadGroup, and a function that starts servers outside it. Proxies must return to
// these servers soon.
func outside(t *testing.T) (w *installed.World, serve func(args ...string) *controlplane.Process) {
	t.Helper()
	w, _ = account(t)
	w.Write(group)
	return w, func(args ...string) *controlplane.Process {
		t.Helper()
		p, err := controlplane.Start(w.Ctx, controlplane.Options{
			Binary: program, Kubeconfig: w.Kubeconfig(), Host: "127.0.0.1", Args: args, WorkDir: t.TempDir(),
			Env: []string{"POD_NAME=", "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD=1s"},
		})
		w.Must(err)
		t.Cleanup(func() {
			p.Stop()
			if text, err := os.ReadFile(p.LogFile()); t.Failed() && err == nil {
				t.Logf("a server said:\n%s", text)
			}
		})
		return p
	}
}

// holder returns the instance that holds a machine's WorkloadEntry, or an empty string if there is no entry.
func holder(w *installed.World, ip string) string {
	w.T.Helper()
	u, err := w.Dynamic().Resource(resource(kinds.WorkloadEntry)).Namespace("vm").Get(w.Ctx, "reviews-"+ip, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	w.Must(err)
	return u.GetAnnotations()["istio.io/workloadController"]
}

// lease returns the name of the Lease by which a server outside the cluster shows that it runs.
func lease(instance string) string {
	return "istio-instance-" + strings.TrimRight(strings.ToLower(instance), "_")
}

// TestServerOutsideTheCluster: a server outside the cluster has a Lease while it runs, and deletes it at the end. It
// deletes old Leases of other servers.
func TestServerOutsideTheCluster(t *testing.T) {
	t.Parallel()
	w, serve := outside(t)
	leases := w.Client().CoordinationV1().Leases(root)
	for name, age := range map[string]time.Duration{"istio-instance-old-1": 48 * time.Hour, "istio-instance-recent-1": time.Hour,
		"another": 48 * time.Hour} {
		renewed := metav1.NewMicroTime(time.Now().Add(-age))
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
		_, err := leases.Create(w.Ctx, l, metav1.CreateOptions{})
		w.Must(err)
	}
	are := func(what string, names ...string) {
		t.Helper()
		w.Eventually(what, func() error {
			list, err := leases.List(w.Ctx, metav1.ListOptions{})
			var got []string
			for _, l := range list.Items {
				got = append(got, l.Name)
			}
			if !slices.Equal(got, slices.Sorted(slices.Values(names))) {
				err = errors.Join(err, fmt.Errorf("the Leases are %v", got))
			}
			return err
		})
	}
	one, two := serve(), serve()
	machine(w, one.GRPC, "10.9.0.1")
	machine(w, two.GRPC, "10.9.0.2")
	first, second := holder(w, "10.9.0.1"), holder(w, "10.9.0.2")
	if first == "" || second == "" || first == second {
		t.Fatalf("entries of %q and %q", first, second)
	}
	are("an old Lease is deleted", "another", "istio-instance-recent-1", lease(first), lease(second))
	two.Stop()
	are("the server that ended has no Lease", "another", "istio-instance-recent-1", lease(first))
}

// TestServerOutsideTheClusterIsKilled: the entries of a server outside the cluster stay while it runs. When it is
// killed, another server outside deletes them, or the leader among the pods.
func TestServerOutsideTheClusterIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-long runs it")
	}
	t.Parallel()
	for by, args := range map[string][]string{"a server outside": nil, "the leader among the pods": {"--podName", "istiod-0"}} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			w, serve := outside(t)
			w.Write("apiVersion: v1\nkind: Pod\nmetadata: {name: istiod-0, namespace: istio-system}\n" +
				"spec: {containers: [{name: discovery, image: istiod}]}\n")
			killed, lives := serve(), serve(args...)
			machine(w, killed.GRPC, "10.9.0.1")
			machine(w, lives.GRPC, "10.9.0.2")
			dead, alive := holder(w, "10.9.0.1"), holder(w, "10.9.0.2")
			killed.Kill()
			if dead == "" || alive == "" || dead == alive || args != nil && alive != "istiod-0" {
				t.Fatalf("entries of %q and %q", dead, alive)
			}
			w.Eventually("the entry of the killed server is gone", func() error {
				if who := holder(w, "10.9.0.1"); who != "" {
					return fmt.Errorf("it is held by %s", who)
				}
				return nil
			})
			if got := holder(w, "10.9.0.2"); got != alive {
				t.Errorf("the entry of the server that runs is held by %q, not %q", got, alive)
			}
		})
	}
}
