package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/apiserver"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/lists"
)

// codeNotWritten is the code of findings about statuses that cannot be read or written.
const codeNotWritten = "StatusNotWritten"

// NewLimit returns the limit of all reconcilers of statuses together: objects per second. 0 means 20.
func NewLimit(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(cmp.Or(perSecond, 20)), 1)
}

// writer writes statuses with a bounded rate. While a kind is forbidden, it tries one write for all objects of the
// kind. It is owned by the goroutine that reconciles, except for the limit.
type writer struct {
	client    client.Client
	limit     *rate.Limiter
	backoff   *flowcontrol.Backoff // of forbidden kinds, by resource
	forbidden map[*kinds.Kind]*forbiddenError
	served    map[*kinds.Kind]string // version with which a request for a kind last succeeded
}

// forbiddenError is the error of a kind whose statuses must not be written.
type forbiddenError struct {
	kind  *kinds.Kind
	until time.Time // time of the next try
	error
}

func (e *forbiddenError) Unwrap() error { return e.error }

// begin begins a term.
func (w *writer) begin(c client.Client) {
	w.client = c
	w.backoff, w.forbidden = flowcontrol.NewBackOff(minPause, maxPause), map[*kinds.Kind]*forbiddenError{}
	w.served = map[*kinds.Kind]string{}
}

// Backoff of a forbidden kind. The backoff of the request that was tried is always longer, so the next try is for
// another object: one object may be forbidden alone.
const (
	minPause = limits.MinBackoff / 2
	maxPause = limits.MaxBackoff - limits.MinBackoff
)

// do calls write, which writes the status of an object of a kind, when the rate allows it. It returns the result of a
// reconcile.
func (w *writer) do(ctx context.Context, k *kinds.Kind, write func() error) (reconcile.Result, error) {
	if e := w.forbidden[k]; e != nil {
		if wait := time.Until(e.until); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, e
		}
	}
	if err := w.limit.Wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	err := write()
	if apierrors.IsForbidden(err) {
		w.backoff.Next(resource(k), time.Now())
		w.forbidden[k] = &forbiddenError{k, time.Now().Add(w.backoff.Get(resource(k))), err}
		return reconcile.Result{}, w.forbidden[k]
	}
	if err == nil {
		delete(w.forbidden, k)
		w.backoff.Reset(resource(k))
	}
	return reconcile.Result{}, err
}

// versions calls request with one version of a kind after the other until the API server has it. The version that was
// served last comes first. It returns the error of the last call.
func (w *writer) versions(k *kinds.Kind, request func(version string) error) (err error) {
	list := k.Versions
	if last, known := w.served[k]; known {
		list = append([]string{last}, lists.Filter(list, func(v string) bool { return v != last })...)
	}
	for _, v := range list {
		if err = request(v); err == nil {
			w.served[k] = v
		}
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	return err
}

// get reads an object. It returns the version that is served.
func (w *writer) get(ctx context.Context, key kinds.Key) (u *unstructured.Unstructured, version string, err error) {
	err = w.versions(key.Kind, func(v string) error {
		u, version = object(key.Kind, v), v
		return w.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, u)
	})
	return u, version, err
}

// update merges parts into the status of an object that was read. It is a conflict if the object has changed since.
func (w *writer) update(ctx context.Context, key kinds.Key, version string, read *unstructured.Unstructured, parts map[string]any) error {
	meta := map[string]any{"resourceVersion": read.GetResourceVersion()}
	return w.patch(ctx, key, version, map[string]any{"metadata": meta, "status": parts})
}

// patch merges parts into an object.
func (w *writer) patch(ctx context.Context, key kinds.Key, version string, parts map[string]any) error {
	text, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	u := object(key.Kind, version)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return w.client.Status().Patch(ctx, u, client.RawPatch(types.MergePatchType, text), client.FieldOwner("pilot-discovery"))
}

// Watches returns nothing, because the World has the objects.
func (*writer) Watches() map[client.Object]cache.ByObject { return nil }

// Requests returns nothing.
func (*writer) Requests(context.Context, client.Object) []reconcile.Request { return nil }

// Finding describes a status that cannot be written. All objects of a forbidden kind have the same finding.
func (*writer) Finding(request reconcile.Request, err error) diag.Diagnostic {
	key := keyOf(request)
	d := diag.Diagnostic{
		Severity: diag.Warning, Code: codeNotWritten, Object: key.String(), Message: "its status cannot be written: " + err.Error(),
		Fix: "correct what the message names; it is tried again",
	}
	if apiserver.LacksRule(err) {
		d.Fix = "grant get and list of the objects, and patch of their status, to this server's ServiceAccount; it is tried again"
	}
	var forbidden *forbiddenError
	switch {
	case key.Name == "":
		d.Object, d.Message = "", "objects of "+resource(key.Kind)+" whose statuses an earlier leader wrote cannot be listed: "+err.Error()
	case errors.As(err, &forbidden):
		d.Object, d.Message = "", "statuses of "+resource(key.Kind)+" cannot be written: forbidden"
	}
	return d
}

// resource returns the name of a kind, such as ingresses.networking.k8s.io.
func resource(k *kinds.Kind) string {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}.String()
}

// Request returns the request for an object, or for its kind if it has no name.
func Request(key kinds.Key) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: resource(key.Kind) + "/" + key.Name}}
}

// keyOf returns the key of a request.
func keyOf(request reconcile.Request) kinds.Key {
	of, name, _ := strings.Cut(request.Name, "/")
	for _, k := range kinds.All() {
		if resource(k) == of {
			return kinds.Key{Kind: k, Namespace: request.Namespace, Name: name}
		}
	}
	panic("unreachable: a request for " + request.Name)
}

// object returns an empty object of a kind in a version.
func object(k *kinds.Kind, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Name})
	return u
}
