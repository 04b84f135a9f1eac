package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/pilot/bootstrap"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
)

// within bounds every wait.
const within = 2 * time.Minute

func start(t *testing.T) (context.Context, *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{ServiceCIDR: "10.64.0.0/12"}) // where the recorded world has its addresses
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	crds, err := cluster.IstioCRDs(ctx)
	if err == nil {
		err = c.InstallCRDs(ctx, crds)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ctx, c
}

func client(t *testing.T, a cluster.Access) *rest.Config {
	t.Helper()
	kubeconfig, err := a.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := crd.Remote(kubeconfig, crd.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func options(t *testing.T) bootstrap.Options {
	const free = "127.0.0.1:0"
	return bootstrap.Options{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test", GRPC: free, HTTP: free, Monitoring: free,
		Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes", Shutdown: time.Second,
		KeepaliveInterval: 30 * time.Second, KeepaliveTimeout: 10 * time.Second, Limits: limits.Default(),
	}
}

// TestSameAsFiles: the worlds whose translation is held against the real istiod's, once on an API server and once exported from it as a directory, give
// every proxy the same bytes.
func TestSameAsFiles(t *testing.T) {
	ctx, c := start(t)
	dir := filepath.Join("..", "..", "..", "pilot", "translate", "testdata", "reference")
	if err := c.ApplyPath(ctx, filepath.Join(dir, "world.yaml")); err != nil {
		t.Fatal(err)
	}
	cases, err := filepath.Glob(filepath.Join(dir, "[0-9]*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range cases {
		if strings.HasSuffix(file, ".mesh.yaml") {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			if err := c.ApplyPath(ctx, file); err != nil {
				t.Fatal(err)
			}
			mesh := strings.TrimSuffix(file, ".yaml") + ".mesh.yaml"
			here, there := options(t), options(t)
			here.MeshConfig, there.MeshConfig = mesh, mesh
			here.ConfigDir, there.Client = export(ctx, t, c), client(t, c.Admin())
			a, b := sent(ctx, t, here, dir), sent(ctx, t, there, dir)
			if len(a) < 100 {
				t.Errorf("only %d resources", len(a))
			}
			for _, name := range slices.Sorted(maps.Keys(a)) {
				if a[name] != b[name] {
					t.Errorf("%s: files %s, API server %s", name, a[name], b[name])
				}
				delete(b, name)
			}
			for name := range b {
				t.Errorf("%s: only from the API server", name)
			}
			if err := c.DeletePath(ctx, file); err != nil {
				t.Fatal(err)
			}
		})
	}
	if ran < 10 {
		t.Errorf("only %d cases", ran)
	}
}

// export writes all that the server reads as one file, as the API server gives it.
func export(ctx context.Context, t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	var out bytes.Buffer
	for _, k := range kinds.All() {
		if k == kinds.Secret {
			continue
		}
		list, err := c.Dynamic().Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // its CustomResourceDefinition is not installed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			text, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			out.WriteString("---\n")
			out.Write(append(text, '\n'))
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "world.yaml"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sent gives the version, a hash of the bytes, of all that six proxies of every sort would be sent.
func sent(ctx context.Context, t *testing.T, o bootstrap.Options, dir string) map[string]string {
	t.Helper()
	i, err := bootstrap.Inspect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if i.Refusal != nil {
		t.Fatal(i.Refusal)
	}
	nodes, err := filepath.Glob(filepath.Join(dir, "nodes", "*.json"))
	if err != nil || len(nodes) != 6 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}
	out := map[string]string{}
	for _, file := range nodes {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		node := &corev3.Node{}
		if err := protojson.Unmarshal(text, node); err != nil {
			t.Fatal(err)
		}
		resources, err := i.Resources(node)
		if err != nil {
			t.Fatal(err)
		}
		for typ, list := range resources {
			for _, r := range list {
				out[fmt.Sprintf("%s %s %s", filepath.Base(file), typ, r.Name)] = r.Version
			}
		}
	}
	return out
}

// running is a server, and what was seen of it.
type running struct {
	t *testing.T
	s *bootstrap.Server
}

func run(t *testing.T, o bootstrap.Options) running {
	t.Helper()
	s, err := bootstrap.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	r := running{t, s}
	r.eventually("http listens", func() bool { return s.Addresses().Monitoring != "" })
	return r
}

func (r running) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within %s: %s", within, what)
		}
	}
}

func (r running) get(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get("http://" + r.s.Addresses().HTTP + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (r running) ready() bool { code, _ := r.get("/ready"); return code == http.StatusOK }

// has tells whether the service is in the snapshot in force.
func (r running) has(service string) bool {
	_, body := r.get("/debug/registryz")
	return strings.Contains(body, service+".svc.cluster.local")
}

func (r running) finding(text string) bool {
	_, body := r.get("/debug/findings")
	return strings.Contains(body, text)
}

func service(name string) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {ports: [{name: http, port: 80}]}\n", name)
}

// TestOutages takes one server through what API servers do to it.
func TestOutages(t *testing.T) {
	ctx, c := start(t)
	apply := func(yaml []byte) {
		t.Helper()
		if err := c.Apply(ctx, yaml); err != nil {
			t.Fatal(err)
		}
	}
	apply(service("first"))
	between, err := faults.Start(ctx, c, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(between.Close)
	o := options(t)
	o.Client = client(t, between.Access(c.Admin()))

	// The API server is down when the server starts, then one list is late: until everything is read, nothing is served.
	between.Refuse()
	r := run(t, o)
	r.eventually("the trouble is told", func() bool { return r.finding("API server") || r.finding("list") || r.finding("watch") })
	if r.ready() || r.s.Addresses().GRPC != "" {
		t.Error("ready without having read anything")
	}
	late := faults.Rule{Match: faults.Match{Verbs: []string{"list", "watch"}, Resource: "sidecars"}, Delay: 5 * time.Second}
	between.Set(late)
	between.Heal()
	r.eventually("services are read", func() bool { return between.Count(faults.Match{Resource: "services"}) > 0 })
	if r.ready() || r.s.Addresses().GRPC != "" {
		t.Error("ready before one kind was read")
	}
	r.eventually("ready", r.ready)
	between.Set()
	if !r.has("first.shop") {
		t.Fatal("the service is not there")
	}

	// keeps runs a fault and wants the services never to go meanwhile, and a new one to come after it.
	keeps := func(what, name string, fault func()) {
		t.Helper()
		gone := make(chan bool)
		stop := make(chan struct{})
		go func() {
			missed := false
			for {
				select {
				case <-stop:
					gone <- missed
					return
				case <-time.After(20 * time.Millisecond):
					missed = missed || !r.has("first.shop") || !r.ready()
				}
			}
		}()
		fault()
		apply(service(name))
		r.eventually(what+": a new service comes", func() bool { return r.has(name + ".shop") })
		close(stop)
		if <-gone {
			t.Errorf("%s: a service went, or readiness", what)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keeps("killed", "after-kill", func() {
		c.KillAPIServer()
		time.Sleep(time.Second)
		must(c.StartAPIServer(ctx))
	})
	keeps("history forgotten", "after-compaction", func() { must(c.ForgetHistory(ctx)) })
	keeps("partition", "after-partition", func() {
		between.Lose()
		time.Sleep(time.Second)
		between.Heal()
	})
	keeps("watches cut", "after-cuts", func() {
		for range 5 {
			between.CutWatches(faults.Match{})
			time.Sleep(200 * time.Millisecond)
		}
	})
	keeps("failing", "after-failures", func() {
		between.Set(faults.Rule{Share: 0.2, Status: http.StatusInternalServerError}, faults.Rule{Share: 0.2, Status: http.StatusTooManyRequests})
		between.CutWatches(faults.Match{})
		time.Sleep(2 * time.Second)
		between.Set()
	})
	keeps("one kind forbidden", "while-forbidden", func() {
		between.Set(faults.Rule{Match: faults.Match{Resource: "virtualservices"}, Status: http.StatusForbidden})
		between.CutWatches(faults.Match{Resource: "virtualservices"})
		r.eventually("it is a finding", func() bool { return r.finding("irtual") })
	})
	between.Set()
	r.eventually("the finding goes", func() bool { return !r.finding("irtual") })
}
