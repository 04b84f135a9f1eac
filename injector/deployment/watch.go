package deployment

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// tags is the resource whose objects are, among others, the tags of revisions.
func tags() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
}

// tagLabel has the name of a tag.
const tagLabel = names.LabelTag

// watched is a cache.ReflectorStore of one resource.
type watched struct {
	c        *Controller
	resource schema.GroupVersionResource
}

// watch follows the objects of one resource that have a label until ctx ends.
func (c *Controller) watch(ctx context.Context, resource schema.GroupVersionResource, selector string) {
	client := c.o.Client.Resource(resource)
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			list, err := client.List(ctx, o)
			c.trouble(resource, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			w, err := client.Watch(ctx, o)
			c.trouble(resource, err)
			return w, err
		},
	}
	r := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lists, c.o.Client), &unstructured.Unstructured{}, &watched{c, resource}, cache.ReflectorOptions{Name: resource.Resource})
	r.RunWithContext(ctx)
}

// trouble notes whether a resource can be read.
func (c *Controller) trouble(resource schema.GroupVersionResource, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.troubles, resource)
	if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		c.troubles[resource] = err.Error()
	}
}

// put takes an object as it is now. The caller holds the lock. It returns the Gateway that the object belongs to.
func (w *watched) put(u *unstructured.Unstructured) types.UID {
	at := ref{w.resource, types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}}
	if w.resource == tags() {
		w.c.tags[at.Name] = u.GetLabels()[tagLabel]
		return ""
	}
	h := w.c.read(u)
	w.c.objects[at] = h
	return h.owner
}

// Add takes an object as read, new or not.
func (w *watched) Add(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected %T", object)
	}
	u = u.DeepCopy()
	w.c.mu.Lock()
	w.c.dirtyOwner(w.put(u))
	w.c.mu.Unlock()
	w.c.Wake()
	return nil
}

// Update is Add.
func (w *watched) Update(object any) error { return w.Add(object) }

// Delete takes the word that an object is gone, or has lost the label.
func (w *watched) Delete(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected %T", object)
	}
	at := ref{w.resource, types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}}
	w.c.mu.Lock()
	w.c.dirtyOwner(w.c.objects[at].owner)
	delete(w.c.objects, at)
	if w.resource == tags() {
		delete(w.c.tags, at.Name)
	}
	w.c.mu.Unlock()
	w.c.Wake()
	return nil
}

// Replace takes all there are.
func (w *watched) Replace(list []any, _ string) error {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for at := range w.c.objects {
		if at.resource == w.resource {
			delete(w.c.objects, at)
		}
	}
	if w.resource == tags() {
		clear(w.c.tags)
	}
	for _, object := range list {
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("unexpected %T", object)
		}
		w.put(u.DeepCopy())
	}
	w.c.synced[w.resource] = true
	w.c.dirtyOwner("")
	w.c.Wake()
	return nil
}

// Resync does nothing: nobody has forgotten anything.
func (w *watched) Resync() error { return nil }

var _ cache.ReflectorStore = (*watched)(nil)

// selector returns which objects of a resource are followed.
func (c *Controller) selector(resource schema.GroupVersionResource) string {
	if resource == tags() {
		return tagLabel + "," + names.LabelRevision + "=" + c.o.Revision
	}
	return names.LabelManaged + "=" + managedValue()
}
