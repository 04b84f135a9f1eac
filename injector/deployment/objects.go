package deployment

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/injector"
)

// ref names an object.
type ref struct {
	kind string
	types.NamespacedName
}

func refOf(u *unstructured.Unstructured) ref { return ref{u.GetKind(), client.ObjectKeyFromObject(u)} }

func (r ref) String() string { return r.kind + " " + r.NamespacedName.String() }

// applied is the last write of an object.
type applied struct {
	wanted  string // checksum of the written object
	content string // checksum of the object that the API server returned
}

// errForeign is the error for an object that belongs to another controller.
var errForeign = errors.New("it is not this controller's: it has no label " + names.LabelManaged)

// contentField is the field of a watched object that has the checksum of its content.
const contentField = "content"

// reduce returns the needed fields of a watched object. It is idempotent.
func reduce(object any) (any, error) {
	from, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{contentField: content(from)}}
	u.SetGroupVersionKind(from.GroupVersionKind())
	u.SetNamespace(from.GetNamespace())
	u.SetName(from.GetName())
	u.SetUID(from.GetUID())
	u.SetResourceVersion(from.GetResourceVersion())
	u.SetLabels(from.GetLabels())
	u.SetOwnerReferences(from.GetOwnerReferences())
	return u, nil
}

// content returns the checksum of an object without the fields that change by themselves, such as its status.
func content(u *unstructured.Unstructured) string {
	if text, reduced := u.Object[contentField].(string); reduced {
		return text
	}
	o, meta := maps.Clone(u.Object), map[string]any{}
	if m, ok := o["metadata"].(map[string]any); ok {
		meta = maps.Clone(m)
	}
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		delete(meta, field)
	}
	delete(o, "status")
	o["metadata"] = meta
	return sum(o)
}

// sum returns the checksum of a JSON value.
func sum(v any) string {
	text, err := json.Marshal(v) // sorts keys
	if err != nil {
		panic(err) // unreachable: it was JSON
	}
	hash := sha256.Sum256(text)
	return string(hash[:])
}

// complete adds this controller's label and the owner to a template's object, and drops null values.
func complete(o map[string]any, g injector.Gateway) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: prune(o).(map[string]any)}
	if u.GetName() == "" || u.GetNamespace() != g.Namespace {
		return nil, fmt.Errorf("the template makes the %s %s/%s, which is in another namespace than the Gateway, or has no name",
			u.GetKind(), u.GetNamespace(), u.GetName())
	}
	labels := u.GetLabels()
	lists.Put(&labels, names.LabelManaged, g.ControllerLabel)
	u.SetLabels(labels)
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: g.Name, UID: g.UID}})
	if len(u.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	return u, nil
}

// prune returns a JSON value without null values.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if e != nil {
				out[k] = prune(e)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, prune(e))
		}
		return out
	case json.Number:
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return v
}

// keep writes the objects of a Gateway. An object that cannot be written does not stop the others.
func (r *Reconciler) keep(ctx context.Context, gateway *kinds.Object, objects []*unstructured.Unstructured) (err error) {
	last, next := r.applied[request(gateway.Key).NamespacedName], map[ref]applied{}
	for _, u := range objects {
		at := refOf(u)
		written, e := r.write(ctx, u, last[at])
		if next[at] = written; e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", at, e))
		}
	}
	r.applied[request(gateway.Key).NamespacedName] = next
	return errors.Join(err, r.remove(ctx, gateway, next))
}

// write writes an object that is missing or differs. It returns the last write of the object.
func (r *Reconciler) write(ctx context.Context, u *unstructured.Unstructured, last applied) (applied, error) {
	at, observed, wanted := client.ObjectKeyFromObject(u), &unstructured.Unstructured{}, sum(u.Object)
	observed.SetGroupVersionKind(u.GroupVersionKind())
	err := r.watched.Get(ctx, at, observed)
	switch {
	case err == nil && last == applied{wanted, content(observed)}:
		return last, nil
	case apierrors.IsNotFound(err): // objects without the label are not watched
		if err = r.client.Get(ctx, at, observed); err == nil && observed.GetLabels()[names.LabelManaged] != managedValue() {
			return last, errForeign
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return last, err
	}
	body := u.DeepCopy()
	if err == nil {
		body.SetUID(observed.GetUID()) // a new object of that name is a conflict
	}
	err = r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(body), client.ForceOwnership, client.FieldOwner(r.o.controller()))
	if err != nil {
		return last, err
	}
	last = applied{wanted, content(body)}
	if last.content != content(observed) {
		r.o.Logger.Info("object of a Gateway written", "object", refOf(u).String())
	}
	return last, nil
}

// remove deletes the objects of a Gateway that its parameters requested before but no longer request.
func (r *Reconciler) remove(ctx context.Context, gateway *kinds.Object, wanted map[ref]applied) (err error) {
	for _, k := range resources() {
		if !k.asked {
			continue
		}
		all := listOf(k.Kind)
		if e := r.watched.List(ctx, all, client.InNamespace(gateway.Namespace)); e != nil {
			return errors.Join(err, e)
		}
		for i := range all.Items {
			u := &all.Items[i]
			at, uid := refOf(u), u.GetUID()
			_, is := wanted[at]
			if is || !slices.ContainsFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return string(o.UID) == gateway.UID }) {
				continue
			}
			e := r.client.Delete(ctx, u, client.Preconditions{UID: &uid})
			if client.IgnoreNotFound(e) != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", at, e))
				continue
			}
			r.o.Logger.Info("object of a Gateway removed", "object", at.String())
		}
	}
	return err
}
