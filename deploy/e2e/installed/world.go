package installed

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/charts"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
)

// Namespace is where the charts are installed.
const Namespace = "istio-system"

// timeout is when a test gives up: far more than a busy machine needs.
const timeout = 15 * time.Minute

// World is a cluster with the charts installed.
type World struct {
	*cluster.Cluster
	T   *testing.T
	Ctx context.Context
}

func start(t *testing.T, o cluster.Options) *World {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return &World{c, t, ctx}
}

// CRDs starts a cluster that has the custom resources of Istio, and no chart.
func CRDs(t *testing.T, o cluster.Options) (context.Context, *cluster.Cluster) {
	t.Helper()
	w := start(t, o)
	crds, err := cluster.IstioCRDs(w.Ctx)
	w.Must(err)
	w.Must(w.InstallCRDs(w.Ctx, crds))
	return w.Ctx, w.Cluster
}

// Start starts a cluster and installs the charts base and istiod, the second with more arguments.
func Start(t *testing.T, set ...string) *World {
	t.Helper()
	w := start(t, cluster.Options{})
	helms, err := charts.Helms(t.TempDir(), w.Kubeconfig())
	w.Must(err)
	for _, release := range []string{"base", "istiod"} {
		chart, err := charts.Chart(release)
		w.Must(err)
		args := []string{"install", release, chart, "-n", Namespace, "--create-namespace"}
		if release == "istiod" {
			args = append(args, set...)
		}
		_, err = helms[0].Run(w.Ctx, args...)
		w.Must(err)
	}
	return w
}

// Must ends the test if there is an error.
func (w *World) Must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Write creates the objects of a YAML text, or changes them.
func (w *World) Write(yaml string) {
	w.T.Helper()
	w.Must(w.Apply(w.Ctx, []byte(yaml)))
}

// Eventually waits until ok returns no error.
func (w *World) Eventually(what string, ok func() error) {
	w.T.Helper()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-w.Ctx.Done():
			w.T.Fatalf("never: %s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Replica is a server of the chart.
type Replica struct {
	*kubelet.Container
	controlplane.Addresses // once it is ready

	w    *World
	file string // of the addresses
}

// Launch starts a server as the chart's Deployment would start that pod, and waits for nothing. It listens on free
// ports of loopback where the arguments do not say otherwise.
func (w *World) Launch(program, deployment, pod string, args ...string) *Replica {
	w.T.Helper()
	dir := w.T.TempDir()
	r := &Replica{w: w, file: filepath.Join(dir, "addresses.json")}
	o := kubelet.Options{Cluster: w.Cluster, Program: program, Namespace: Namespace, Deployment: deployment, Pod: pod, Dir: dir, Args: []string{"--addressFile", r.file}}
	for _, flag := range []string{"monitoringAddr", "grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr"} {
		o.Args = append(o.Args, "--"+flag+"=127.0.0.1:0")
	}
	o.Args = append(o.Args, args...)
	var err error
	r.Container, err = kubelet.Start(w.Ctx, o)
	w.Must(err)
	w.T.Cleanup(func() {
		if err := r.Stop(); err != nil {
			w.T.Error(err)
		}
		if w.T.Failed() {
			w.T.Logf("%s said:\n%s", pod, r.Log())
		}
	})
	return r
}

// Ready waits until the server is ready, and returns it.
func (r *Replica) Ready() *Replica {
	r.w.T.Helper()
	r.w.Eventually("the server is ready", func() error {
		select {
		case <-r.Ended():
			r.w.T.Fatalf("it has ended: %s", r.Log())
		default:
		}
		text, err := os.ReadFile(r.file)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &r.Addresses)
	})
	return r
}
