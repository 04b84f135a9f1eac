package exports

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/clusterset"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/controllers"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// reconciler creates missing ServiceExports. A request names a Service, and the ServiceExport of the same name.
type reconciler struct {
	o Options

	client  client.Client
	watched client.Reader
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func (r *reconciler) Kinds() []*kinds.Kind { return []*kinds.Kind{kinds.ServiceExport} }

// export returns an empty ServiceExport.
func (r *reconciler) export() *unstructured.Unstructured {
	return controllers.NewObject(kinds.ServiceExport, cmp.Or(r.o.Version, kinds.ServiceExport.Versions[0]))
}

// Watches returns the ServiceExports, reduced to their names.
func (r *reconciler) Watches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		r.export(): {Transform: controllers.Reduce(func(_, _ *unstructured.Unstructured) {})},
	}
}

func (r *reconciler) Requests(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{request(o.GetNamespace(), o.GetName())}
}

// All returns a request for each Service, because its ServiceExport may be missing.
func (r *reconciler) All() (list []reconcile.Request) {
	for _, o := range r.o.World.ObjectsOf(kinds.Service) {
		if o.Cluster == r.o.Cluster {
			list = append(list, request(o.Namespace, o.Name))
		}
	}
	return list
}

func (r *reconciler) Begin(c client.Client, watched client.Reader) { r.client, r.watched = c, watched }

func (r *reconciler) Finding(request reconcile.Request, err error) diag.Diagnostic {
	d := diag.Diagnostic{
		Severity: diag.Warning, Code: "ServiceNotExported", Object: "Service " + request.String(),
		Message: "its ServiceExport cannot be created, so other clusters do not call its endpoints: " + err.Error(),
		Fix:     "mend what the error names; it is tried again",
	}
	if apiserver.LacksRule(err) {
		d.Fix = "grant create of serviceexports to this server's ServiceAccount; it is tried again"
	}
	return d
}

// exported returns the Service of a request if it may be exported, or nil. A Service of a file has no UID, and its
// cluster has no such Service.
func (r *reconciler) exported(request reconcile.Request) *kinds.Object {
	o := r.o.World.Object(kinds.Key{Kind: kinds.Service, Namespace: request.Namespace, Name: request.Name, Cluster: r.o.Cluster})
	m := r.o.World.Mesh()
	if o == nil || o.UID == "" || m == nil || !clusterset.Exportable(o.Spec.(*corev1.Service)) {
		return nil
	}
	if scope.ClusterLocal(m, r.o.Domain, names.FQDN(o.Name, o.Namespace, r.o.Domain)) {
		return nil
	}
	return o
}

// Reconcile creates the ServiceExport of a Service if it is missing.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	service := r.exported(request)
	if service == nil {
		return reconcile.Result{}, nil
	}
	if err := r.watched.Get(ctx, request.NamespacedName, r.export()); !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	u := r.export()
	u.SetNamespace(request.Namespace)
	u.SetName(request.Name)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: kinds.Service.Name, Name: service.Name, UID: types.UID(service.UID)}
	u.SetOwnerReferences([]metav1.OwnerReference{owner})
	err := r.client.Create(ctx, u)
	switch {
	case err == nil:
		r.o.Logger.Debug("ServiceExport created", "service", request.String(), "cluster", r.o.Cluster)
	case apierrors.IsAlreadyExists(err): // the watch is late
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{RequeueAfter: limits.MaxBackoff}, nil // the namespace is being deleted, and the World has the Service still
	default:
		err = fmt.Errorf("create the ServiceExport: %w", err)
	}
	return reconcile.Result{}, err
}
