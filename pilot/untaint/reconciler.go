package untaint

import (
	"context"
	"encoding/json"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
)

// Label and LabelValue mark the pods of Istio's CNI plugin.
const (
	Label      = "k8s-app"
	LabelValue = "istio-cni-node"
)

// Options configure a Reconciler.
type Options struct {
	Namespace string // of the plugin's pods
	Taint     string // key of the taint
	Logger    *slog.Logger
}

// Reconciler removes the taint from nodes. A request names a node.
type Reconciler struct {
	o       Options
	client  client.Client
	watched client.Reader
}

// New returns a Reconciler.
func New(o Options) *Reconciler { return &Reconciler{o: o} }

// Kinds returns the kinds that are read or written.
func (*Reconciler) Kinds() []*kinds.Kind { return []*kinds.Kind{kinds.Node, kinds.Pod} }

// Watches returns all nodes, and the plugin's pods.
func (r *Reconciler) Watches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		controllers.NewObject(kinds.Node, "v1"): {Transform: controllers.Reduce(keepTaints)},
		controllers.NewObject(kinds.Pod, "v1"): {
			Label:      labels.SelectorFromSet(labels.Set{Label: LabelValue}),
			Namespaces: map[string]cache.Config{r.o.Namespace: {}}, Transform: controllers.Reduce(keepReady),
		},
	}
}

// keepTaints keeps the taints of a node.
func keepTaints(from, to *unstructured.Unstructured) {
	if list := taints(from); len(list) > 0 {
		to.Object["spec"] = map[string]any{"taints": list}
	}
}

// keepReady keeps the node of a pod, and the condition that it is ready.
func keepReady(from, to *unstructured.Unstructured) {
	to.Object["spec"] = map[string]any{"nodeName": nodeOf(from)}
	if ready(from) {
		to.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	}
}

func taints(node *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	return list
}

func nodeOf(pod *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	return name
}

func ready(pod *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}

// Requests returns the node, or the node of a pod that is ready.
func (*Reconciler) Requests(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetName()
	if pod, ok := o.(*unstructured.Unstructured); ok && pod.GetKind() == "Pod" {
		if name = nodeOf(pod); name == "" || !ready(pod) {
			return nil
		}
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// All returns nothing: each request belongs to a watched node.
func (*Reconciler) All() []reconcile.Request { return nil }

// Begin begins a term.
func (r *Reconciler) Begin(c client.Client, watched client.Reader) { r.client, r.watched = c, watched }

// Finding describes a node that keeps its taint.
func (r *Reconciler) Finding(request reconcile.Request, err error) diag.Diagnostic {
	d := diag.Diagnostic{
		Severity: diag.Warning, Code: "TaintNotRemoved", Object: "Node " + request.Name,
		Message: "the taint " + r.o.Taint + " keeps pods away, although the CNI plugin is ready there: " + err.Error(),
		Fix:     "mend what the error names; it is tried again",
	}
	if apiserver.LacksRule(err) {
		d.Fix = "grant patch of nodes to this server's ServiceAccount, as the chart does for taint.enabled; it is tried again"
	}
	return d
}

// Reconcile removes the taint from a node with a ready pod of the plugin.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := controllers.NewObject(kinds.Node, "v1")
	if err := r.watched.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	others := []any{}
	for _, t := range taints(node) {
		if t, ok := t.(map[string]any); !ok || t["key"] != r.o.Taint {
			others = append(others, t)
		}
	}
	if len(others) == len(taints(node)) {
		return reconcile.Result{}, nil
	}
	if ok, err := r.pluggedIn(ctx, request.Name); !ok || err != nil {
		return reconcile.Result{}, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.GetResourceVersion()}, // others may have changed the taints
		"spec":     map[string]any{"taints": others},
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	err = r.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: limits.MaxBackoff}, nil // the node is being deleted, and the cache has it still
	}
	if err == nil {
		r.o.Logger.Info("taint removed", "name", request.Name)
	}
	return reconcile.Result{}, err
}

// pluggedIn reports whether a node has a ready pod of the plugin.
func (r *Reconciler) pluggedIn(ctx context.Context, node string) (bool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind("PodList")
	if err := r.watched.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	for i := range list.Items {
		if nodeOf(&list.Items[i]) == node && ready(&list.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}
