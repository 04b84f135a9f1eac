package clusters

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	//go:embed testdata/one.yaml
	firstCluster string
	//go:embed testdata/two.yaml
	secondCluster string
)

const (
	// startTimeout is for all processes together on a busy machine of two cores.
	startTimeout = 3 * time.Minute
	// remoteTimeout is the server's timeout for remote clusters.
	remoteTimeout = 2 * time.Second
)

// mesh is two clusters, the control plane of both, and their pods.
type mesh struct {
	t        *testing.T // at whose end all ends
	work     string
	one, two *cluster.Cluster
	state    string       // of the control plane's CA; optional
	agent    *proxy.Agent // of each proxy; optional
	env      []string     // of the control plane, in addition
	pilot    *controlplane.Process
	// own are the pods of the first cluster except sotw, sotw is one pod of it, and remote are the pods of the second
	// cluster.
	own, sotw, remote *world.World
}

// newMesh starts both clusters and a control plane with the objects of the first, exported as files. No pod runs yet.
func newMesh(ctx context.Context, t *testing.T) *mesh {
	t.Helper()
	began := time.Now()
	m := &mesh{t: t, work: t.TempDir()}
	suite.LogTails(t, m.work)
	start := func(ctx context.Context, to **cluster.Cluster, yaml string) error {
		c, err := cluster.Start(ctx, cluster.Options{})
		if err != nil {
			return err
		}
		t.Cleanup(c.Stop)
		*to = c
		return c.Apply(ctx, []byte(yaml))
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		return start(ctx, &m.two, secondCluster+slice("echo", "echo-3", "10.10.2.23", ready)+slice("echo", "echo-4", "10.10.2.24", ready))
	})
	all.Go(func() error {
		if err := start(ctx, &m.one, ""); err != nil {
			return err
		}
		if err := m.one.InstallCRDs(ctx, os.Getenv(crdsVar)); err != nil {
			return err
		}
		yaml := firstCluster
		for _, service := range []string{"echo", "split"} {
			yaml += slice(service, "echo-1", "10.10.0.21", ready) + slice(service, "echo-2", "10.10.0.22", ready)
		}
		return m.one.Apply(ctx, []byte(yaml+weights(0)))
	})
	must.Succeed(t, all.Wait())
	t.Logf("two clusters after %s", time.Since(began).Round(time.Millisecond))
	return m
}

// serve starts the control plane.
func (m *mesh) serve(ctx context.Context, t *testing.T, configDir, kubeconfig string) {
	t.Helper()
	var err error
	m.pilot, err = controlplane.Start(ctx, controlplane.Options{
		Binary: os.Getenv(pilotVar), ConfigDir: configDir, Kubeconfig: kubeconfig, Host: network.Gateway().String(), WorkDir: m.work,
		StateDir: m.state, Env: m.env,
		Args: []string{"--remoteClusterTimeout", remoteTimeout.String()},
	})
	must.Succeed(t, err)
	m.t.Cleanup(m.pilot.Stop)
}

// run starts the chosen pods of a cluster, and waits for their Envoys.
func (m *mesh) run(ctx context.Context, t *testing.T, yaml, clusterID string, delta bool, chosen func(name string) bool) *world.World {
	t.Helper()
	return m.runIn(ctx, t, "", yaml, clusterID, delta, chosen)
}

// runIn is run for pods that name their network. Gateways ask only for the endpoints of their network.
func (m *mesh) runIn(ctx context.Context, t *testing.T, on, yaml, clusterID string, delta bool,
	chosen func(name string) bool) *world.World {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "cluster.yaml"), []byte(yaml), 0o644))
	directory, err := world.Read(dir)
	must.Succeed(t, err)
	directory.Pods = slices.DeleteFunc(directory.Pods, func(p world.Pod) bool { return !chosen(p.Node.Name) })
	for i := range directory.Pods {
		n := &directory.Pods[i].Node
		if n.Cluster, n.Network = clusterID, on; n.Type == "router" {
			n.View = on
		}
	}
	w, err := suite.StartPods(network,
		world.Options{Directory: directory, Envoy: os.Getenv(envoyVar), Agent: m.agent, XDS: m.pilot.GRPC, Delta: delta, WorkDir: m.work})
	must.Succeed(t, err)
	m.t.Cleanup(w.Stop)
	must.Succeed(t, w.Ready(ctx))
	return w
}

// healthy fails the test unless every Envoy has accepted its configuration.
func (m *mesh) healthy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for _, w := range []*world.World{m.own, m.sotw, m.remote} {
		if w == nil {
			continue
		}
		if err := w.Ready(ctx); err != nil {
			t.Error(err)
		}
	}
}

func apply(t *testing.T, c *cluster.Cluster, yaml string) {
	t.Helper()
	must.Succeed(t, c.Apply(t.Context(), []byte(yaml)))
}

// get reads a page of the control plane.
func (m *mesh) get(t *testing.T, path string) []byte {
	t.Helper()
	resp, err := m.pilot.Get(t.Context(), path)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s says %s", path, resp.Status)
	}
	return body
}

// page reads a page of JSON.
func page[T any](t *testing.T, m *mesh, path string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(m.get(t, path), &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// finding reports whether the control plane reports a finding.
func (m *mesh) finding(t *testing.T, code string) bool {
	t.Helper()
	return strings.Contains(string(m.get(t, "/debug/findings")), code)
}

// The conditions of an endpoint, as a cluster's controllers write them.
const (
	ready    = "{ready: true, serving: true, terminating: false}"
	unready  = "{ready: false, serving: false, terminating: false}"
	stopping = "{ready: false, serving: true, terminating: true}"
)

// slice is one pod's EndpointSlice for a service.
func slice(service, pod, addr, conditions string) string {
	return fmt.Sprintf(`
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[1]s-%[2]s
  namespace: mesh
  labels: {kubernetes.io/service-name: %[1]s}
addressType: IPv4
ports:
- {name: http, port: 8080, protocol: TCP}
endpoints:
- addresses: [%[3]s]
  conditions: %[4]s
  targetRef: {kind: Pod, name: %[2]s, namespace: mesh}
`, service, pod, addr, conditions)
}

// weights sends so many percent of the split service's requests to its second version.
func weights(second int) string {
	return fmt.Sprintf(`
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: split, namespace: mesh}
spec:
  hosts: [split]
  http:
  - route:
    - destination: {host: split, subset: v1}
      weight: %d
    - destination: {host: split, subset: v2}
      weight: %d
`, 100-second, second)
}
