package deployment

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/injector"
)

// ref names an object.
type ref struct {
	resource schema.GroupVersionResource
	types.NamespacedName
}

// hash is that of JSON.
type hash [sha256.Size]byte

// have is what the API server has of an object.
type have struct {
	uid     types.UID
	managed bool      // by this controller, as the label says
	owner   types.UID // the Gateway; empty: none
	content hash      // without what others write all the time
}

// applied is what was written last of an object.
type applied struct {
	gateway kinds.Key
	wanted  hash
	content hash // of what the API server made of it
	at      time.Time
	pause   time.Duration // before it is written once more
}

// errForeign is the error of an object that is another's.
var errForeign = errors.New("it is not this controller's: it has no label " + names.LabelManaged)

// read returns what counts of an object. It changes the object.
func (c *Controller) read(u *unstructured.Unstructured) have {
	h := have{uid: u.GetUID(), managed: u.GetLabels()[names.LabelManaged] == managedValue()}
	for _, o := range u.GetOwnerReferences() {
		if o.Kind == "Gateway" {
			h.owner = o.UID
		}
	}
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	delete(u.Object, "status")
	h.content = sum(u.Object)
	return h
}

func sum(v any) hash {
	text, err := json.Marshal(v) // sorts keys
	if err != nil {
		panic(err) // of what was JSON
	}
	return sha256.Sum256(text)
}

// complete adds to a template's object what each has: the label by which it is known, and its owner. What is null is
// left out.
func complete(o map[string]any, g injector.Gateway) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: prune(o).(map[string]any)}
	if u.GetName() == "" || u.GetNamespace() != g.Namespace {
		return nil, fmt.Errorf("the template makes the %s %s/%s, which is in another namespace than the Gateway, or has no name", u.GetKind(), u.GetNamespace(), u.GetName())
	}
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[names.LabelManaged] = g.ControllerLabel
	u.SetLabels(labels)
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: g.Name, UID: g.UID}})
	if len(u.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	return u, nil
}

// prune returns a value of JSON without what is null.
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

// keep writes an object if it is missing or differs. It returns how long to wait where it was written just now.
func (c *Controller) keep(ctx context.Context, gateway kinds.Key, r resource, u *unstructured.Unstructured) (time.Duration, error) {
	at := ref{r.GroupVersionResource, types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}}
	client := c.o.Client.Resource(r.GroupVersionResource).Namespace(at.Namespace)
	wanted := sum(u.Object)
	c.mu.Lock()
	seen, exists := c.objects[at]
	c.mu.Unlock()
	last := c.applied[at]
	if exists && last.wanted == wanted && last.content == seen.content {
		return 0, nil
	}
	if wait := time.Until(last.at.Add(last.pause)); wait > 0 {
		return wait, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if !exists { // one without the label is not followed
		got, err := client.Get(ctx, at.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			if seen = c.read(got); !seen.managed {
				return 0, errForeign
			}
		case !apierrors.IsNotFound(err):
			return 0, err
		}
	}
	body := u.DeepCopy()
	body.SetUID(seen.uid) // another one of that name, made meanwhile, is a conflict
	got, err := client.Apply(ctx, at.Name, body, metav1.ApplyOptions{FieldManager: ControllerName, Force: true})
	if err != nil {
		return 0, err
	}
	now := c.read(got)
	next := applied{gateway: gateway, wanted: wanted, content: now.content, at: time.Now(), pause: leastPause}
	if last.wanted == wanted { // somebody undoes it
		next.pause = min(2*last.pause, mostPause)
		if time.Since(last.at) > calm {
			next.pause = leastPause
		}
	}
	c.applied[at] = next
	c.mu.Lock()
	c.objects[at] = now // until the watch brings it
	c.mu.Unlock()
	if now.content != seen.content {
		c.o.Logger.Info("object of a Gateway written", "object", u.GetKind()+" "+at.String())
	}
	return 0, nil
}

// remove deletes the objects of a Gateway that it asks for no more: those of kinds that are made only where asked for.
func (c *Controller) remove(ctx context.Context, gateway types.UID, namespace string, wanted map[ref]bool) (err error) {
	for _, r := range resources() {
		if !r.asked {
			continue
		}
		var gone []ref
		c.mu.Lock()
		for at, h := range c.objects {
			if at.resource == r.GroupVersionResource && at.Namespace == namespace && h.managed && h.owner == gateway && !wanted[at] {
				gone = append(gone, at)
			}
		}
		c.mu.Unlock()
		for _, at := range gone {
			c.mu.Lock()
			uid := c.objects[at].uid
			c.mu.Unlock()
			e := c.o.Client.Resource(r.GroupVersionResource).Namespace(namespace).Delete(ctx, at.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			if e != nil && !apierrors.IsNotFound(e) {
				err = errors.Join(err, fmt.Errorf("%s %s: %w", r.kind, at, e))
				continue
			}
			delete(c.applied, at)
			c.o.Logger.Info("object of a Gateway removed", "object", r.kind+" "+at.String())
		}
	}
	return err
}
