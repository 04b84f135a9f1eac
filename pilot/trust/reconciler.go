package trust

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
)

// reconciler reconciles the ConfigMaps with one name. A request names a ConfigMap.
type reconciler struct {
	Map
	cluster string
	world   World
	logger  *slog.Logger

	client  client.Client
	watched client.Reader
}

func (r *reconciler) Kinds() []*kinds.Kind { return []*kinds.Kind{kinds.ConfigMap} }

func (r *reconciler) Watches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{configMap(): {
		Field: fields.OneTermEqualSelector("metadata.name", r.Name), Transform: controllers.Reduce(r.keep),
	}}
}

func configMap() *unstructured.Unstructured { return controllers.NewObject(kinds.ConfigMap, "v1") }

// keep keeps the parts of a ConfigMap that Reconcile reads.
func (r *reconciler) keep(from, to *unstructured.Unstructured) {
	if value, is := from.GetLabels()[Label]; is {
		to.SetLabels(map[string]string{Label: value})
	}
	if text, is, _ := unstructured.NestedString(from.Object, "data", r.Key); is {
		to.Object["data"] = map[string]any{r.Key: unique.Make(text).Value()}
	}
	if immutable(from) {
		to.Object["immutable"] = true
	}
}

// immutable reports whether the data of a ConfigMap is immutable.
func immutable(u *unstructured.Unstructured) bool {
	is, _, _ := unstructured.NestedBool(u.Object, "immutable")
	return is
}

func (r *reconciler) Requests(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{r.request(o.GetNamespace())}
}

func (r *reconciler) request(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: r.Name}}
}

// All returns a request for each namespace, because its ConfigMap may be missing.
func (r *reconciler) All() (list []reconcile.Request) {
	return lists.Map(r.world.Namespaces(r.cluster), r.request)
}

func (r *reconciler) Begin(c client.Client, watched client.Reader) { r.client, r.watched = c, watched }

func (r *reconciler) Finding(request reconcile.Request, err error) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "RootsNotWritten", Object: "ConfigMap " + request.String(),
		Message: "workloads of the namespace do not get the roots of the mesh: " + err.Error(),
		Fix:     fix(err),
	}
}

// errImmutable is the error of an immutable ConfigMap with other roots.
var errImmutable = errors.New("the ConfigMap is immutable and holds something else")

// fix returns the remedy for an error of a write.
func fix(err error) string {
	switch {
	case errors.Is(err, errImmutable):
		return "delete the ConfigMap: it is created again at once"
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.HasStatusCause(err, metav1.CauseType(field.ErrorTypeTooLong)):
		return "remove other keys from the ConfigMap, or certificates from the roots: a ConfigMap holds at most 1 MiB; it is tried again"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return "raise the ResourceQuota of the namespace; it is tried again"
	case apiserver.LacksRule(err):
		return "grant create and patch of it to this server's ServiceAccount; it is tried again"
	}
	return "mend what the error names; it is tried again"
}

// Reconcile creates a missing ConfigMap, or patches one that differs.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	text := string(r.Text())
	if text == "" || !r.world.TakesPart(r.cluster, request.Namespace) {
		return reconcile.Result{}, nil
	}
	u := configMap()
	err := r.watched.Get(ctx, request.NamespacedName, u)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	got, _, _ := unstructured.NestedString(u.Object, "data", r.Key)
	switch {
	case err != nil && r.Existing:
		return reconcile.Result{}, nil
	case err == nil && got == text && u.GetLabels()[Label] == LabelValue:
		return reconcile.Result{}, nil
	case got != text && immutable(u):
		return reconcile.Result{}, errImmutable // its deletion is an event
	}
	if err = r.write(ctx, request.NamespacedName, text, err == nil); err == nil {
		r.logger.Debug("roots written", "namespace", request.Namespace, "name", request.Name)
	}
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{RequeueAfter: limits.MaxBackoff}, nil // the namespace is being deleted, and the World has it still
	}
	return reconcile.Result{}, err
}

// write creates a ConfigMap, or patches one that exists.
func (r *reconciler) write(ctx context.Context, at types.NamespacedName, text string, exists bool) error {
	u := configMap()
	u.SetNamespace(at.Namespace)
	u.SetName(at.Name)
	u.SetLabels(map[string]string{Label: LabelValue})
	u.Object["data"] = map[string]any{r.Key: text}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": u.GetLabels()}, "data": u.Object["data"]})
	if err != nil {
		return err
	}
	if !exists {
		if err := r.client.Create(ctx, u); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return r.client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch))
}
