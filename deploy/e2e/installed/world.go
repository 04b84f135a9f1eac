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
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/faults"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
)

// Namespace is the namespace of the charts.
const Namespace = "istio-system"

// timeout is the limit of a test. It is far more than a busy machine needs.
const timeout = 15 * time.Minute

// World is a cluster with the charts installed.
type World struct {
	*cluster.Cluster
	T       *testing.T
	Ctx     context.Context
	Between *faults.Proxy // between the cluster and launched servers; nil without Interpose
}

// Interpose puts a proxy that can fail between the cluster and the servers that are launched from now on.
func (w *World) Interpose() *faults.Proxy {
	w.T.Helper()
	var err error
	w.Between, err = faults.Start(w.Ctx, w.Cluster, "127.0.0.1")
	w.Must(err)
	w.T.Cleanup(w.Between.Close)
	return w.Between
}

// CRDs starts a cluster for one test, with options. It has Istio's custom resources and no chart.
func CRDs(t *testing.T, o cluster.Options) (context.Context, *cluster.Cluster) {
	t.Helper()
	w := world(t)
	p, err := prepare(w.Ctx, o)
	w.Must(err)
	t.Cleanup(p.Stop)
	return w.Ctx, p.Cluster
}

func world(t *testing.T) *World {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return &World{T: t, Ctx: ctx}
}

// Empty returns a cluster with Istio's custom resources and no chart.
func Empty(t *testing.T) *World {
	t.Helper()
	w := world(t)
	w.take()
	return w
}

// Another returns one more cluster of the same test, with Istio's custom resources and no chart.
func (w *World) Another() *World {
	w.T.Helper()
	other := &World{T: w.T, Ctx: w.Ctx}
	other.take()
	return other
}

func (w *World) take() {
	w.T.Helper()
	var err error
	w.Cluster, err = clusters.take(w.Ctx, w.T)
	w.Must(err)
}

// Start returns a cluster with the charts base and istiod. The arguments for Helm apply to istiod.
func Start(t *testing.T, set ...string) *World {
	t.Helper()
	w := Empty(t)
	w.Install("base")
	w.Install("istiod", set...)
	return w
}

// Released starts a cluster for one test, in which Helm installs the charts base and istiod as releases.
func Released(t *testing.T) *World {
	t.Helper()
	w := world(t)
	var err error
	w.Cluster, err = cluster.Start(w.Ctx, cluster.Options{})
	w.Must(err)
	t.Cleanup(w.Stop)
	helms, err := charts.Helms(t.TempDir(), w.Kubeconfig())
	w.Must(err)
	for _, release := range []string{"base", "istiod"} {
		path, err := charts.Chart(release)
		w.Must(err)
		_, err = helms[0].Run(w.Ctx, "install", release, path, "-n", Namespace, "--create-namespace")
		w.Must(err)
	}
	return w
}

// Install applies the manifests of a chart, rendered with more arguments for Helm.
func (w *World) Install(chart string, set ...string) {
	w.T.Helper()
	helms, err := charts.Helms(w.T.TempDir(), "")
	w.Must(err)
	path, err := charts.Chart(chart)
	w.Must(err)
	args := []string{"template", chart, path, "-n", Namespace, "--skip-tests"}
	if chart == "base" {
		args = append(args, "--set", "base.enableCRDTemplates=false") // each cluster has them already
	}
	manifests, err := helms[0].Run(w.Ctx, append(args, set...)...)
	w.Must(err)
	w.Write(manifests)
}

// Must ends the test if err is not nil.
func (w *World) Must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Write creates or changes the objects of a YAML text.
func (w *World) Write(yaml string) {
	w.T.Helper()
	w.Must(w.Apply(w.Ctx, []byte(yaml)))
}

// Eventually waits until ok returns no error.
func (w *World) Eventually(what string, ok func() error) {
	w.T.Helper()
	for began := time.Now(); ; {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-w.Ctx.Done():
			w.T.Fatalf("never: %s: %v", what, err)
		case <-time.After(pause(time.Since(began))):
		}
	}
}

// pause returns the time until the next check. It grows with the time waited, because each check costs the API server
// something.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/20, 20*time.Millisecond), 250*time.Millisecond)
}

// Replica is a server of the chart.
type Replica struct {
	*kubelet.Container
	controlplane.Addresses // valid once the replica is ready

	w    *World
	file string // the file of the addresses
}

// Launch starts a server as the chart's Deployment would start that pod, and does not wait. By default it listens on
// free ports of loopback.
func (w *World) Launch(program, deployment, pod string, args ...string) *Replica {
	w.T.Helper()
	dir := w.T.TempDir()
	r := &Replica{w: w, file: filepath.Join(dir, "addresses.json")}
	o := kubelet.Options{Cluster: w.Cluster, Program: program, Namespace: Namespace, Deployment: deployment, Pod: pod, Dir: dir,
		Args: []string{"--addressFile", r.file}}
	for _, flag := range []string{"monitoringAddr", "grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr"} {
		o.Args = append(o.Args, "--"+flag+"=127.0.0.1:0")
	}
	o.Args = append(o.Args, args...)
	if w.Between != nil {
		o.Access = w.Between.Access
	}
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
