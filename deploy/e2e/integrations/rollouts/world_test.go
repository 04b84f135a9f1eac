package rollouts

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
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
	*install.World
	t   *testing.T
	ctx context.Context
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context()}
	w.World = install.New(t, install.Options{Network: network, Image: func(name string) (node.Image, bool) {
		switch {
		case strings.Contains(name, "/argo-rollouts:"):
			return install.Image("argo-rollouts", "argo-rollouts"), true
		case strings.Contains(name, "/rollouts-demo:"):
			return install.Image("mesh-echo", "server"), true
		}
		return node.Image{}, false
	}})
	w.installArgo()
	w.Ready(install.Namespace, "istiod")
	w.Ready(argoNamespace, "argo-rollouts")
	return w
}

// installArgo does what `kubectl apply -n argo-rollouts -f install.yaml` does.
func (w *world) installArgo() {
	w.t.Helper()
	objects, err := cluster.Parse([]byte(w.File("argo-rollouts.yaml")))
	must.Succeed(w.t, err)
	var all strings.Builder
	for _, o := range objects {
		if slices.Contains([]string{"ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"}, o.GetKind()) {
			o.SetNamespace(argoNamespace)
		}
		text, err := yaml.Marshal(o.Object)
		must.Succeed(w.t, err)
		all.WriteString("\n---\n" + string(text))
	}
	w.Write(all.String())
}

// apply applies a file of the sample, with changes: pairs of an old and a new text.
func (w *world) apply(name string, changes ...string) {
	w.t.Helper()
	text := w.File(name)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			w.t.Fatalf("%s has no %q", name, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	w.Write(text)
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
