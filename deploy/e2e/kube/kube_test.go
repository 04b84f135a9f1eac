package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/bootstrap"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/config/crd"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// within is the limit of every wait.
const within = 2 * time.Minute

func empty(t *testing.T) (context.Context, *cluster.Cluster) {
	t.Helper()
	w := installed.Empty(t)
	return w.Ctx, w.Cluster
}

func client(t *testing.T, a cluster.Access) *rest.Config {
	t.Helper()
	kubeconfig, err := a.Kubeconfig()
	must.Succeed(t, err)
	config, err := crd.Remote(kubeconfig, crd.ClientOptions{})
	must.Succeed(t, err)
	return config
}

func options(t *testing.T) bootstrap.Options {
	const free = "127.0.0.1:0"
	return bootstrap.Options{
		Options: ingest.Options{
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test",
			Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default(),
		},
		GRPC: free, HTTP: free, Monitoring: free, Shutdown: time.Minute,
		KeepaliveInterval: 30 * time.Second, KeepaliveTimeout: 10 * time.Second,
	}
}

// TestSameAsFiles: the worlds whose translation is compared with the real istiod, once on an API server and once
// exported from it to a directory, give every proxy the same bytes.
func TestSameAsFiles(t *testing.T) {
	t.Parallel()
	ctx, c := empty(t)
	dir := filepath.Join("..", "..", "..", "pilot", "translate", "testdata", "reference")
	must.Succeed(t, c.ApplyPath(ctx, filepath.Join(dir, "world.yaml")))
	cases, err := filepath.Glob(filepath.Join(dir, "cases", "*"))
	if err != nil || len(cases) < 10 {
		t.Fatalf("only %d cases, %v", len(cases), err)
	}
	for i, folder := range cases {
		all := 25
		if testing.Short() {
			all = 10
		}
		if i >= all && i%4 > 0 { // Every fourth of the others suffices: they have the same kinds of objects.
			continue
		}
		t.Run(filepath.Base(folder), func(t *testing.T) {
			file, mesh := filepath.Join(folder, "objects.yaml"), filepath.Join(folder, "mesh.yaml")
			must.Succeed(t, c.ApplyPath(ctx, file))
			here, there := options(t), options(t)
			here.MeshConfig, there.MeshConfig = mesh, mesh
			here.ConfigDir, there.Client = export(ctx, t, c), client(t, c.Admin())
			a, b := sent(ctx, t, here, dir), sent(ctx, t, there, dir)
			if len(a) < 50 {
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
			must.Succeed(t, c.DeletePath(ctx, file))
		})
	}
}

// export writes all objects that the server reads to one file, as the API server returns them.
func export(ctx context.Context, t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	var out bytes.Buffer
	for _, k := range kinds.All() {
		if k == kinds.Secret {
			continue
		}
		list, err := c.Dynamic().Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}).
			List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // its CustomResourceDefinition is not installed
		}
		must.Succeed(t, err)
		for _, o := range list.Items {
			text, err := json.Marshal(o.Object)
			must.Succeed(t, err)
			out.WriteString("---\n")
			out.Write(append(text, '\n'))
		}
	}
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "world.yaml"), out.Bytes(), 0o644))
	return dir
}

// sent returns the version, a hash of the bytes, of everything that six proxies of all types would be sent.
func sent(ctx context.Context, t *testing.T, o bootstrap.Options, dir string) map[string]string {
	t.Helper()
	i, err := inspect.Read(ctx, o.Options, catalog.Features())
	must.Succeed(t, err)
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
		must.Succeed(t, err)
		node := &corev3.Node{}
		must.Succeed(t, protojson.Unmarshal(text, node))
		resources, err := i.Resources(node)
		must.Succeed(t, err)
		for typ, list := range resources {
			for _, r := range list {
				out[fmt.Sprintf("%s %s %s", filepath.Base(file), typ, r.Name)] = r.Version
			}
		}
	}
	return out
}
