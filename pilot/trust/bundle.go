package trust

import (
	"context"
	"encoding/json"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
)

func bundleKind() *kinds.Kind {
	return &kinds.Kind{
		Name: "ClusterTrustBundle", Group: "certificates.k8s.io", Versions: []string{"v1beta1"}, Plural: "clustertrustbundles", Cluster: true,
	}
}

func bundleObject() *unstructured.Unstructured { return controllers.NewObject(bundleKind(), "v1beta1") }

// bundleReconciler reconciles one ClusterTrustBundle, which the only request names.
type bundleReconciler struct {
	Map     // its name and text
	client  client.Client
	watched client.Reader
}

func (r *bundleReconciler) Kinds() []*kinds.Kind { return []*kinds.Kind{bundleKind()} }

func (r *bundleReconciler) Watches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{bundleObject(): {Field: fields.OneTermEqualSelector("metadata.name", r.Name)}}
}

func (r *bundleReconciler) Requests(context.Context, client.Object) []reconcile.Request {
	return r.All()
}

func (r *bundleReconciler) All() []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: r.Name}}}
}

func (r *bundleReconciler) Begin(c client.Client, watched client.Reader) {
	r.client, r.watched = c, watched
}

func (r *bundleReconciler) Finding(_ reconcile.Request, err error) diag.Diagnostic {
	d := diag.Diagnostic{
		Severity: diag.Warning, Code: "RootsNotWritten", Object: "ClusterTrustBundle " + r.Name,
		Message: "workloads do not get the roots of the mesh: " + err.Error(), Fix: "mend what the error names; it is tried again",
	}
	if apiserver.LacksRule(err) || strings.Contains(err.Error(), "attest") { // the second is of an admission plugin
		d.Fix = "grant create and patch of clustertrustbundles.certificates.k8s.io, and attest of the signer " + names.TrustBundleSigner +
			", to this server's ServiceAccount; it is tried again"
	}
	return d
}

// Reconcile creates a missing ClusterTrustBundle, or patches one that differs.
func (r *bundleReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	text := string(r.Text())
	if text == "" {
		return reconcile.Result{}, nil
	}
	u := bundleObject()
	err := r.watched.Get(ctx, request.NamespacedName, u)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if got, _, _ := unstructured.NestedString(u.Object, "spec", "trustBundle"); err == nil && got == text {
		return reconcile.Result{}, nil
	}
	if err != nil {
		u.SetName(r.Name)
		u.Object["spec"] = map[string]any{"signerName": names.TrustBundleSigner, "trustBundle": text}
		if err := r.client.Create(ctx, u); !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, err
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"trustBundle": text}})
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch))
}
