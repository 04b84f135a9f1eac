package rollouts

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

var (
	rollouts        = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
	analysisRuns    = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "analysisruns"}
	virtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
)

// argoNamespace is the namespace that the manifests of Argo Rollouts expect.
const argoNamespace = "argo-rollouts"

// client sends requests to the application.
const client = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: client, namespace: shop}
spec:
  selector:
    matchLabels: {app: client}
  template:
    metadata:
      labels: {app: client}
    spec:
      containers:
      - {name: client, image: example.com/echo-advanced:1}
`

// world is a cluster with a node, on which the control plane and Argo Rollouts run.
type world struct {
	*cluster.Cluster
	t    *testing.T
	ctx  context.Context
	node *node.Node
}

func start(t *testing.T) *world {
	t.Helper()
	work := filepath.Join(os.TempDir(), "rollouts")
	must.Succeed(t, os.Mkdir(work, 0o755))
	suite.LogTails(t, work)
	w := &world{t: t, ctx: t.Context()}
	w.Cluster, w.node = install.Start(w.ctx, t, install.Options{Network: network, Work: work, Image: func(name string) (node.Image, bool) {
		switch {
		case strings.Contains(name, "/argo-rollouts:"):
			return install.Image("argo-rollouts", "argo-rollouts"), true
		case strings.Contains(name, "/rollouts-demo:"):
			return install.Image("mesh-echo", "server"), true
		}
		return node.Image{}, false
	}})
	w.installArgo()
	for namespace, deployment := range map[string]string{install.Namespace: "istiod", argoNamespace: "argo-rollouts"} {
		suite.Eventually(t, deployment+" is ready", func() bool {
			d, err := w.Client().AppsV1().Deployments(namespace).Get(w.ctx, deployment, metav1.GetOptions{})
			return err == nil && d.Status.ReadyReplicas == 1
		})
	}
	return w
}

// installArgo does what `kubectl apply -n argo-rollouts -f install.yaml` does.
func (w *world) installArgo() {
	w.t.Helper()
	objects, err := cluster.Parse(w.file("argo-rollouts.yaml"))
	must.Succeed(w.t, err)
	var out []byte
	for _, o := range objects {
		if slices.Contains([]string{"ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"}, o.GetKind()) {
			o.SetNamespace(argoNamespace)
		}
		text, err := yaml.Marshal(o.Object)
		must.Succeed(w.t, err)
		out = append(append(out, "\n---\n"...), text...)
	}
	must.Succeed(w.t, w.Apply(w.ctx, out))
}

func (w *world) file(name string) []byte {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv(install.DirVar), name))
	must.Succeed(w.t, err)
	return text
}

// apply applies a file of the sample, with changes: pairs of an old and a new text.
func (w *world) apply(name string, changes ...string) {
	w.t.Helper()
	text := string(w.file(name))
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			w.t.Fatalf("%s has no %q", name, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	must.Succeed(w.t, w.Apply(w.ctx, []byte(text)))
}

func (w *world) patch(resource schema.GroupVersionResource, name, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.Dynamic().Resource(resource).Namespace("shop").
		Patch(w.ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	must.Succeed(w.t, err)
}

// promote ends the pause of a rollout, as `kubectl argo rollouts promote` does.
func (w *world) promote() {
	w.t.Helper()
	w.patch(rollouts, "web", `[{"op": "remove", "path": "/status/pauseConditions"}]`, "status")
}

func (w *world) get(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.Dynamic().Resource(resource).Namespace("shop").Get(w.ctx, name, metav1.GetOptions{})
	must.Succeed(w.t, err)
	return o
}

// state is the state of the Rollout.
type state struct {
	phase, message string
	step           int64
	revision       int
}

func (w *world) rollout() (s state) {
	w.t.Helper()
	o := w.get(rollouts, "web")
	s.phase, _, _ = unstructured.NestedString(o.Object, "status", "phase")
	s.message, _, _ = unstructured.NestedString(o.Object, "status", "message")
	s.step, _, _ = unstructured.NestedInt64(o.Object, "status", "currentStepIndex")
	s.revision, _ = strconv.Atoi(o.GetAnnotations()["rollout.argoproj.io/revision"])
	if seen, _, _ := unstructured.NestedString(o.Object, "status", "observedGeneration"); seen != strconv.FormatInt(o.GetGeneration(), 10) {
		s.phase = ""
	}
	return s
}

// weight returns the weight of the canary.
func (w *world) weight() int64 {
	w.t.Helper()
	return weightOf(w.get(virtualServices, "web"))
}

func weightOf(o runtime.Object) int64 {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return -1
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "http")
	if len(list) == 0 {
		return -1
	}
	route, _, _ := unstructured.NestedSlice(list[0].(map[string]any), "route")
	if len(route) != 2 {
		return -1
	}
	weight, _, _ := unstructured.NestedInt64(route[1].(map[string]any), "weight")
	return weight
}

// analysis is the state of an AnalysisRun.
type analysis struct {
	phase    string
	measured bool     // a measurement was begun
	values   []string // of measurements that have ended
}

// analysis returns the AnalysisRun of a step.
func (w *world) analysis(revision, step int) (a analysis) {
	w.t.Helper()
	list, err := w.Dynamic().Resource(analysisRuns).Namespace("shop").
		List(w.ctx, metav1.ListOptions{LabelSelector: "step-index=" + strconv.Itoa(step)})
	must.Succeed(w.t, err)
	for _, o := range list.Items {
		if o.GetAnnotations()["rollout.argoproj.io/revision"] != strconv.Itoa(revision) {
			continue
		}
		a.phase, _, _ = unstructured.NestedString(o.Object, "status", "phase")
		results, _, _ := unstructured.NestedSlice(o.Object, "status", "metricResults")
		for _, r := range results {
			measurements, _, _ := unstructured.NestedSlice(r.(map[string]any), "measurements")
			for _, m := range measurements {
				a.measured = true
				if value, ok := m.(map[string]any)["value"].(string); ok {
					a.values = append(a.values, value)
				}
			}
		}
	}
	return a
}

func (w *world) podsOf(selector string) []corev1.Pod {
	w.t.Helper()
	list, err := w.Client().CoreV1().Pods("shop").List(w.ctx, metav1.ListOptions{LabelSelector: selector})
	must.Succeed(w.t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// exec runs a command in the container client of the pod with an app label, and returns what it prints.
func (w *world) exec(app string, command ...string) string {
	w.t.Helper()
	pods := w.podsOf("app=" + app)
	if len(pods) == 0 {
		return ""
	}
	req := w.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace("shop").Name(pods[0].Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: app, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	exec, err := remotecommand.NewSPDYExecutor(w.Admin().Config(), "POST", req.URL())
	must.Succeed(w.t, err)
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	if err := exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		w.t.Logf("%v: %v: %s", command, err, stderr.String())
	}
	return stdout.String()
}
