package controller

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// watched is a cache.ReflectorStore of the configurations of one kind.
type watched struct {
	c        *Controller
	resource schema.GroupVersionResource
}

// watch follows the configurations of one kind that belong to the revision until ctx ends.
func (c *Controller) watch(ctx context.Context, resource schema.GroupVersionResource) {
	client, selector := c.o.Client.Resource(resource), names.LabelRevision+"="+c.o.Revision
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

func (w *watched) parse(object any) (*config, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("unexpected %T", object)
	}
	return parse(w.resource, u)
}

// Add takes a configuration as read, new or not.
func (w *watched) Add(object any) error {
	parsed, err := w.parse(object)
	if err != nil {
		return err
	}
	w.c.mu.Lock()
	w.c.configs[parsed.key] = parsed
	w.c.mu.Unlock()
	w.c.Wake()
	return nil
}

// Update is Add.
func (w *watched) Update(object any) error { return w.Add(object) }

// Delete takes the word that a configuration is gone, or is another revision's.
func (w *watched) Delete(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected %T", object)
	}
	w.c.mu.Lock()
	delete(w.c.configs, key{w.resource, u.GetName()})
	w.c.mu.Unlock()
	w.c.Wake()
	return nil
}

// Replace takes all there are.
func (w *watched) Replace(list []any, _ string) error {
	all := make([]*config, 0, len(list))
	for _, object := range list {
		parsed, err := w.parse(object)
		if err != nil {
			return err
		}
		all = append(all, parsed)
	}
	w.c.mu.Lock()
	for k := range w.c.configs {
		if k.resource == w.resource {
			delete(w.c.configs, k)
		}
	}
	for _, parsed := range all {
		w.c.configs[parsed.key] = parsed
	}
	w.c.synced[w.resource] = true
	w.c.mu.Unlock()
	w.c.Wake()
	return nil
}

// Resync does nothing: nobody has forgotten anything.
func (w *watched) Resync() error { return nil }

var _ cache.ReflectorStore = (*watched)(nil)
