package writers

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// machine opens the stream of a workload that registers, and keeps it open until the test ends.
func machine(ctx context.Context, t *testing.T, address, ip string) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := structpb.NewStruct(map[string]any{"NAMESPACE": "vm", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": ip, "AUTO_REGISTER_GROUP": "reviews"})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev3.Node{Id: "sidecar~" + ip + "~m.vm~vm.svc.cluster.local", Metadata: meta}
	if err := ads.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: envoy.ClusterType}); err != nil {
		t.Fatal(err)
	}
	if _, err := ads.Recv(); err != nil {
		t.Fatal(err)
	}
}

// outside returns a cluster, and a function that starts servers outside it.
func outside(t *testing.T) (context.Context, *cluster.Cluster, func(args ...string) *controlplane.Process) {
	t.Helper()
	ctx, c, _ := start(t)
	if err := c.Apply(ctx, []byte(group)); err != nil {
		t.Fatal(err)
	}
	return ctx, c, func(args ...string) *controlplane.Process {
		t.Helper()
		p, err := controlplane.Start(ctx, controlplane.Options{Binary: program, Kubeconfig: c.Kubeconfig(), Host: "127.0.0.1", Args: args, WorkDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			p.Stop()
			if text, err := os.ReadFile(p.LogFile()); t.Failed() && err == nil {
				t.Logf("a server said:\n%s", text)
			}
		})
		return p
	}
}

// entry returns the holder of a machine's entry, "" if there is no entry.
func entry(ctx context.Context, t *testing.T, c *cluster.Cluster, ip string) string {
	t.Helper()
	u, err := c.Dynamic().Resource(resource(kinds.WorkloadEntry)).Namespace("vm").Get(ctx, "reviews-"+ip, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return u.GetAnnotations()["istio.io/workloadController"]
}

// What a server outside the cluster registered is taken away by the next one when it was killed, and is left alone
// while it runs; and a server that ends takes along what told that it runs.
func TestServerOutsideTheClusterIsKilled(t *testing.T) {
	t.Parallel()
	ctx, c, serve := outside(t)
	leases := func() string {
		t.Helper()
		list, err := c.Client().CoordinationV1().Leases("istio-system").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range list.Items {
			names = append(names, l.Name)
		}
		return strings.Join(names, " ")
	}
	for name, age := range map[string]time.Duration{"istio-instance-old-1": 48 * time.Hour, "istio-instance-recent-1": time.Hour, "another": 48 * time.Hour} {
		renewed := metav1.NewMicroTime(time.Now().Add(-age))
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
		if _, err := c.Client().CoordinationV1().Leases("istio-system").Create(ctx, l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	killed, lives := serve(), serve()
	machine(ctx, t, killed.GRPC, "10.9.0.1")
	machine(ctx, t, lives.GRPC, "10.9.0.2")
	dead, alive := entry(ctx, t, c, "10.9.0.1"), entry(ctx, t, c, "10.9.0.2")
	if dead == "" || alive == "" || dead == alive {
		t.Fatalf("entries of %q and %q", dead, alive)
	}
	for _, i := range []string{dead, alive} {
		if name := "istio-instance-" + strings.TrimRight(strings.ToLower(i), "_"); !strings.Contains(leases(), name) {
			t.Errorf("no %s among %s", name, leases())
		}
	}
	eventually(ctx, t, "an old lease is taken away", func() error {
		if now := leases(); strings.Contains(now, "istio-instance-old-1") || !strings.Contains(now, "istio-instance-recent-1") || !strings.Contains(now, "another") {
			return errors.New(now)
		}
		return nil
	})
	killed.Kill()
	last := serve()
	machine(ctx, t, last.GRPC, "10.9.0.3")
	eventually(ctx, t, "the entry of the killed server is gone", func() error {
		if who := entry(ctx, t, c, "10.9.0.1"); who != "" {
			return fmt.Errorf("it is held by %s", who)
		}
		return nil
	})
	for ip, who := range map[string]string{"10.9.0.2": alive, "10.9.0.3": entry(ctx, t, c, "10.9.0.3")} {
		if got := entry(ctx, t, c, ip); got != who || got == "" {
			t.Errorf("the entry %s is held by %q, not %q", ip, got, who)
		}
	}
	name := "istio-instance-" + strings.TrimRight(strings.ToLower(alive), "_")
	lives.Stop()
	eventually(ctx, t, "the server that ended is not said to run", func() error {
		if now := leases(); strings.Contains(now+" ", name+" ") {
			return errors.New(now)
		}
		return nil
	})
}

// The leader among the pods takes away what a server outside the cluster registered that was killed. There is no other
// server outside that could.
func TestLeaderSweepsForServersOutside(t *testing.T) {
	t.Parallel()
	ctx, c, serve := outside(t)
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: istiod-0, namespace: istio-system}\nspec: {containers: [{name: discovery, image: istiod}]}\n"
	if err := c.Apply(ctx, []byte(pod)); err != nil {
		t.Fatal(err)
	}
	leads, killed := serve("--podName", "istiod-0"), serve()
	machine(ctx, t, leads.GRPC, "10.9.0.1")
	machine(ctx, t, killed.GRPC, "10.9.0.2")
	killed.Kill()
	if who := entry(ctx, t, c, "10.9.0.2"); who == "" || who == "istiod-0" {
		t.Fatalf("the entry is held by %q", who)
	}
	eventually(ctx, t, "the entry of the killed server is gone", func() error {
		if who := entry(ctx, t, c, "10.9.0.2"); who != "" {
			return fmt.Errorf("it is held by %s", who)
		}
		return nil
	})
	if who := entry(ctx, t, c, "10.9.0.1"); who != "istiod-0" {
		t.Errorf("the leader's own entry is held by %q", who)
	}
}
