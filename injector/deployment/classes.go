package deployment

import (
	"context"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Class is a GatewayClass.
type Class struct {
	Name, Controller, Description string
}

// Classes returns the classes of a control plane. defaults is the name of the class for ordinary gateways, and
// controller the name of the control plane in classes.
func Classes(defaults, controller string) []Class {
	return []Class{
		{defaults, controller, "The default Istio GatewayClass"},
		{"istiod-lite", controller, "Gateways that istiod-lite deploys and configures"},
		{"istio-remote", names.UnmanagedGatewayController, "Remote to this cluster. Does not deploy or affect configuration."},
	}
}

// ClassReconciler creates missing GatewayClasses, and does not change existing ones. A request names a class.
type ClassReconciler struct {
	world   World
	owner   string // field manager of the classes
	classes []Class
	logger  *slog.Logger
	client  client.Client
}

// NewClasses returns a ClassReconciler. owner is the field manager of the classes that it creates.
func NewClasses(w World, owner string, classes []Class, logger *slog.Logger) *ClassReconciler {
	return &ClassReconciler{world: w, owner: owner, classes: classes, logger: logger}
}

// classResync is the time after which the Reconciler tries again to create a class that the World does not have yet.
// The class may have been deleted before the World had it, or the API server may lack the kind.
const classResync = 30 * time.Second

// Kinds returns the kind of classes.
func (*ClassReconciler) Kinds() []*kinds.Kind { return []*kinds.Kind{kinds.GatewayClass} }

// Watches returns nil, because the World follows classes.
func (*ClassReconciler) Watches() map[client.Object]cache.ByObject { return nil }

// Requests returns nothing.
func (*ClassReconciler) Requests(context.Context, client.Object) []reconcile.Request { return nil }

// All returns the classes of this control plane.
func (r *ClassReconciler) All() (list []reconcile.Request) {
	return lists.Map(r.classes, func(class Class) reconcile.Request { return request(kinds.Key{Name: class.Name}) })
}

// Begin begins a term.
func (r *ClassReconciler) Begin(c client.Client, _ client.Reader) { r.client = c }

// Reconcile creates a class that is missing.
func (r *ClassReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	i := slices.IndexFunc(r.classes, func(c Class) bool { return c.Name == request.Name })
	if i < 0 || r.world.Object(kinds.Key{Kind: kinds.GatewayClass, Name: request.Name}) != nil {
		return reconcile.Result{}, nil
	}
	u := object(kinds.GatewayClass)
	u.SetName(request.Name)
	u.Object["spec"] = map[string]any{"controllerName": r.classes[i].Controller, "description": r.classes[i].Description}
	err := r.client.Create(ctx, u, client.FieldOwner(r.owner))
	switch {
	case err == nil:
		r.logger.Info("class created", "object", "GatewayClass "+request.Name)
	case !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err):
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: classResync}, nil
}

// Finding describes a class that could not be created.
func (*ClassReconciler) Finding(request reconcile.Request, err error) diag.Diagnostic {
	fix := "correct what the message names"
	if apiserver.LacksRule(err) {
		fix = "grant create of gatewayclasses to this server's ServiceAccount"
	}
	return diag.Diagnostic{
		Severity: diag.Warning, Code: "GatewayClassNotCreated", Object: "GatewayClass " + request.Name,
		Fix: fix + ", or create it; it is tried again",
	}
}
