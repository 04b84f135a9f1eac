package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const manifests = `
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}, uid: from-an-export, resourceVersion: "7"}
spec:
  serviceAccountName: web
  nodeName: node-1
  containers: [{name: app, image: "example.invalid/web"}]
status: {phase: Running, podIP: 10.10.1.1, podIPs: [{ip: 10.10.1.1}]}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: shop}
  spec: {type: LoadBalancer, clusterIP: 10.96.0.80, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
  status: {loadBalancer: {ingress: [{ip: 192.0.2.80}]}}
- apiVersion: networking.istio.io/v1
  kind: WorkloadEntry
  metadata: {name: vm, namespace: machines}
  spec: {address: 10.10.2.1, labels: {app: web}}
  status: {conditions: [{type: Healthy, status: "True"}]}
`

var workloadEntries = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "workloadentries"}

// TestCluster tests one cluster through its life, because a start takes seconds. The order of its parts matters.
func TestCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := Start(ctx, Options{Dir: t.TempDir()})
	must.Succeed(t, err)
	t.Cleanup(c.Stop)
	part := func(name string, test func(context.Context, *testing.T, *Cluster)) {
		if !t.Run(name, func(t *testing.T) { test(ctx, t, c) }) {
			t.FailNow()
		}
	}
	part("apply", testApply)
	part("delete", testDelete)
	part("identities", testIdentities)
	part("restored", testRestore)
	part("etcd killed", testEtcdKilled)
	part("frozen", testFrozen)
	part("history forgotten", testForgetHistory)
	part("stop", testStop)
}

func testApply(ctx context.Context, t *testing.T, c *Cluster) {
	must.Succeed(t, c.InstallCRDs(ctx, os.Getenv(crdsVar)))
	for range 2 { // the second time changes nothing and is no error
		must.Succeed(t, c.Apply(ctx, []byte(manifests)))
	}
	pod, err := c.Client().CoreV1().Pods("shop").Get(ctx, "web-1", metav1.GetOptions{})
	must.Succeed(t, err)
	if pod.Status.PodIP != "10.10.1.1" || pod.Status.Phase != "Running" || pod.Spec.ServiceAccountName != "web" ||
		pod.UID == "from-an-export" {
		t.Errorf("pod = %+v", pod)
	}
	service, err := c.Client().CoreV1().Services("shop").Get(ctx, "web", metav1.GetOptions{})
	must.Succeed(t, err)
	if in := service.Status.LoadBalancer.Ingress; service.Spec.ClusterIP != "10.96.0.80" || len(in) != 1 || in[0].IP != "192.0.2.80" {
		t.Errorf("service = %+v", service)
	}
	entry, err := c.Dynamic().Resource(workloadEntries).Namespace("machines").Get(ctx, "vm", metav1.GetOptions{})
	must.Succeed(t, err)
	if conditions, _, _ := unstructured.NestedSlice(entry.Object, "status", "conditions"); len(conditions) != 1 {
		t.Errorf("workload entry = %v, want its status too", entry.Object)
	}
	// Fields that a later manifest leaves out are removed.
	must.Succeed(t, c.Apply(ctx, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {one: '1', two: '2'}")))
	must.Succeed(t, c.Apply(ctx, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {two: '3'}")))
	a, err := c.Client().CoreV1().ConfigMaps("shop").Get(ctx, "a", metav1.GetOptions{})
	must.Succeed(t, err)
	if len(a.Data) != 1 || a.Data["two"] != "3" {
		t.Errorf("config map has %v", a.Data)
	}
	if err := c.Apply(ctx, []byte("apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: a}")); err == nil {
		t.Error("a kind that nobody knows was applied")
	}
}

func testDelete(ctx context.Context, t *testing.T, c *Cluster) {
	const doomed = "apiVersion: v1\nkind: Namespace\nmetadata: {name: doomed}\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: doomed}\n" +
		"spec: {nodeName: node-1, containers: [{name: app, image: x}]}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: doomed}"
	must.Succeed(t, c.Apply(ctx, []byte(doomed)))
	namespace, _, _ := strings.Cut(doomed, "---")
	for range 2 {
		must.Succeed(t, c.Delete(ctx, []byte(namespace)))
	}
	if _, err := c.Client().CoreV1().Namespaces().Get(ctx, "doomed", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace: %v, want it gone", err)
	}
	if pods, err := c.Client().CoreV1().Pods("doomed").List(ctx, metav1.ListOptions{}); err != nil || len(pods.Items) > 0 {
		t.Errorf("pods of a namespace that is gone: %v, %v", pods, err)
	}
	must.Succeed(t, c.Apply(ctx, []byte(doomed)))
	must.Succeed(t, c.Delete(ctx, []byte(doomed)))
}

func testIdentities(ctx context.Context, t *testing.T, c *Cluster) {
	access, err := c.ServiceAccount(ctx, "istio-system", "istiod")
	must.Succeed(t, err)
	client := kubernetes.NewForConfigOrDie(access.Config())
	if _, err := client.CoreV1().Services("shop").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a binding: %v, want forbidden", err)
	}
	anonymous := access
	anonymous.Token = ""
	if _, err := kubernetes.NewForConfigOrDie(anonymous.Config()).CoreV1().Services("shop").List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("somebody without a token may read services")
	}
	stranger := access
	stranger.CA = nil
	if _, err := kubernetes.NewForConfigOrDie(stranger.Config()).Discovery().ServerVersion(); err == nil {
		t.Error("a client that does not know the authority trusts the server")
	}
	const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: shop}
rules: [{apiGroups: [""], resources: [services], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: istiod, namespace: istio-system}]
`
	must.Succeed(t, c.Apply(ctx, []byte(binding)))
	err = poll(ctx, func() error { // RBAC watches bindings, so they apply a little later
		_, err := client.CoreV1().Services("shop").List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	review, err := c.Client().AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: access.Token},
	}, metav1.CreateOptions{})
	must.Succeed(t, err)
	if s := review.Status; !s.Authenticated || s.User.Username != "system:serviceaccount:istio-system:istiod" {
		t.Errorf("token review says %+v", s)
	}
}

func testRestore(ctx context.Context, t *testing.T, c *Cluster) {
	apply := func(yaml string) {
		t.Helper()
		must.Succeed(t, c.Apply(ctx, []byte(yaml)))
	}
	get := func(name string) *corev1.ConfigMap {
		t.Helper()
		m, err := c.Client().CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return m
	}
	const kept, deleted = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\ndata: {a: before}\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deleted}\n"
	apply(kept + "---\n" + deleted)
	uid := get("deleted").UID
	before, err := c.Snapshot(ctx)
	must.Succeed(t, err)
	for range 2 {
		apply(strings.Replace(kept, "before", "after", 1) + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: new, namespace: new}\n")
		must.Succeed(t, c.Delete(ctx, []byte(deleted+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: machines}\n")))
		must.Succeed(t, c.Restore(ctx, before))
		if got := get("kept").Data["a"]; got != "before" {
			t.Errorf("an object that was changed has %q", got)
		}
		if get("deleted").UID != uid {
			t.Error("an object that was deleted is not what it was")
		}
		if _, err := c.Client().CoreV1().Namespaces().Get(ctx, "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a namespace that came later: %v, want it gone", err)
		}
		list, err := c.Dynamic().Resource(workloadEntries).Namespace("machines").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("custom objects that were deleted: %v, %v", list, err)
		}
	}
}

func testEtcdKilled(ctx context.Context, t *testing.T, c *Cluster) {
	c.KillEtcd()
	must.Succeed(t, c.StartEtcd(ctx))
	err := poll(ctx, func() error { // the API server connects again after a while
		return c.Apply(ctx, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: after-etcd}"))
	})
	must.Succeed(t, err)
	if _, err := c.Client().CoreV1().Pods("shop").Get(ctx, "web-1", metav1.GetOptions{}); err != nil {
		t.Errorf("after a crash of etcd: %v", err)
	}
}

func testFrozen(ctx context.Context, t *testing.T, c *Cluster) {
	get := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := c.Client().CoreV1().ConfigMaps("default").Get(ctx, "after-etcd", metav1.GetOptions{})
		return err
	}
	must.Succeed(t, c.FreezeAPIServer())
	silent := func(what string, ask func(time.Duration) error) { // on a busy machine, threads stop a little later
		t.Helper()
		var err error
		for range 100 {
			if err = ask(300 * time.Millisecond); errors.Is(err, context.DeadlineExceeded) {
				return
			}
		}
		t.Errorf("frozen %s: %v, want no answer", what, err)
	}
	silent("API server", get)
	must.Succeed(t, c.ThawAPIServer())
	if err := get(2 * time.Minute); err != nil {
		t.Error(err)
	}
	must.Succeed(t, c.FreezeEtcd())
	write := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		return c.Apply(ctx, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: after-freeze}"))
	}
	silent("etcd", write)
	must.Succeed(t, c.ThawEtcd())
	if err := write(2 * time.Minute); err != nil {
		t.Error(err)
	}
}

func testForgetHistory(ctx context.Context, t *testing.T, c *Cluster) {
	configMaps := c.Client().CoreV1().ConfigMaps("default")
	before, err := configMaps.List(ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	since := func() error {
		w, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
		if err != nil {
			return err
		}
		defer w.Stop()
		if e := <-w.ResultChan(); e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		return nil
	}
	gone := func(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
	write := func(name string) {
		must.Succeed(t, c.Apply(ctx, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+"}")))
	}
	write("next")
	if err := since(); err != nil {
		t.Errorf("watch since a version that is remembered: %v", err)
	}
	address, pid := c.Admin().Server, c.apiServer.pid()
	must.Succeed(t, c.RestartAPIServer(ctx))
	if c.Admin().Server != address || c.apiServer.pid() == pid {
		t.Errorf("restarted at %s as process %d, was at %s as %d", c.Admin().Server, c.apiServer.pid(), address, pid)
	}
	if _, err := configMaps.Get(ctx, "next", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	must.Succeed(t, c.ForgetHistory(ctx))
	if err := since(); !gone(err) {
		t.Errorf("watch since a forgotten version: %v, want 410 Gone", err)
	}
	exact := metav1.ListOptions{ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if _, err := configMaps.List(ctx, exact); !gone(err) {
		t.Errorf("list at a forgotten version: %v, want 410 Gone", err)
	}
}

func testStop(_ context.Context, t *testing.T, c *Cluster) {
	pids := []int{c.apiServer.pid(), c.etcd.pid()}
	must.Succeed(t, c.FreezeAPIServer())
	c.Stop()
	c.Stop()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v, want it gone", pid, err)
		}
	}
	if err := c.ThawAPIServer(); err == nil {
		t.Error("a process that has ended was signalled")
	}
	if _, err := os.Stat(filepath.Join(c.Dir(), "kube-apiserver.log")); err != nil {
		t.Errorf("a folder that is not the cluster's own was removed: %v", err)
	}
}

// Another program takes the port first.
func TestPortTaken(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	found, err := Find()
	must.Succeed(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	taken := "http://" + l.Addr().String()
	c := &Cluster{o: Options{Binaries: found, Dir: t.TempDir(), EtcdArgs: []string{"--listen-client-urls=" + taken}}}
	tries := 0
	err = onFreePorts(func() error {
		if tries++; tries == 2 {
			c.o.EtcdArgs = nil
		}
		return c.startEtcd(ctx)
	})
	if err != nil || tries != 2 {
		t.Errorf("started after %d tries: %v; want the second to work", tries, err)
	}
	c.etcd.kill()
}

// The error names the command that builds a missing binary.
func TestMissingBinary(t *testing.T) {
	t.Setenv("ETCD", filepath.Join(t.TempDir(), "etcd"))
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("err = %v, want one that names the make target", err)
	}
}
