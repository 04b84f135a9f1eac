package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// fieldManager owns the fields of applied objects. Fields that a later manifest leaves out are removed.
const fieldManager = "e2e"

// Apply applies the objects of the YAML: first Namespaces and CustomResourceDefinitions, then the others in order. It
// writes the status of kinds that have one, and leaves out fields that only the API server writes, such as uid, so that
// exported objects can be applied.
func (c *Cluster) Apply(ctx context.Context, yaml []byte) error { return c.ApplyParallel(ctx, yaml, 1) }

// ApplyPath applies a file, or all *.yaml below a folder in the order of their paths.
func (c *Cluster) ApplyPath(ctx context.Context, path string) error {
	yaml, err := read(path)
	if err != nil {
		return err
	}
	return c.Apply(ctx, yaml)
}

// ApplyParallel is Apply with several workers, in any order.
func (c *Cluster) ApplyParallel(ctx context.Context, yaml []byte, workers int) error {
	objects, err := Parse(yaml)
	if err != nil {
		return err
	}
	var crds []*unstructured.Unstructured
	var rest []*unstructured.Unstructured
	for _, o := range objects {
		switch o.GroupVersionKind().GroupKind() {
		case namespaceKind:
			if err := c.applyOne(ctx, o); err != nil {
				return err
			}
		case crdKind:
			crds = append(crds, o)
		default:
			rest = append(rest, o)
		}
	}
	if err := each(crds, workers, func(o *unstructured.Unstructured) error { return c.applyOne(ctx, o) }); err != nil {
		return err
	}
	if err := c.established(ctx, crds); err != nil {
		return err
	}
	if err := c.ensureFor(ctx, rest); err != nil {
		return err
	}
	return each(rest, workers, func(o *unstructured.Unstructured) error { return c.applyOne(ctx, o) })
}

// Delete deletes the objects that the YAML names, in reverse order, and waits until they are gone. Missing objects are
// no error.
func (c *Cluster) Delete(ctx context.Context, yaml []byte) error {
	objects, err := Parse(yaml)
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(objects) {
		if err := c.deleteOne(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// DeletePath deletes the objects that a file, or all *.yaml below a folder, name.
func (c *Cluster) DeletePath(ctx context.Context, path string) error {
	yaml, err := read(path)
	if err != nil {
		return err
	}
	return c.Delete(ctx, yaml)
}

func (c *Cluster) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	mapping, err := c.mapping(ctx, o)
	if err != nil {
		return err
	}
	objects := c.objects(mapping, o)
	o = o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "deletionTimestamp",
		"selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	status, hasStatus := o.Object["status"]
	if hasStatus && c.hasStatus(mapping) {
		delete(o.Object, "status")
	} else {
		hasStatus = false
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := objects.Apply(ctx, o.GetName(), o, options); err != nil {
		return fmt.Errorf("apply %s: %w", describe(o), err)
	}
	if mapping.GroupVersionKind.GroupKind() == namespaceKind {
		if err := c.ensureServiceAccount(ctx, o.GetName(), "default"); err != nil {
			return err
		}
	}
	if !hasStatus || status == nil {
		return nil
	}
	only := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	only.SetGroupVersionKind(o.GroupVersionKind())
	only.SetName(o.GetName())
	only.SetNamespace(o.GetNamespace())
	if _, err := objects.ApplyStatus(ctx, o.GetName(), only, options); err != nil {
		return fmt.Errorf("apply the status of %s: %w", describe(o), err)
	}
	return nil
}

func (c *Cluster) deleteOne(ctx context.Context, o *unstructured.Unstructured) error {
	mapping, err := c.mapping(ctx, o)
	if err != nil {
		return err
	}
	if mapping.GroupVersionKind.GroupKind() == namespaceKind {
		return c.deleteNamespace(ctx, o.GetName())
	}
	objects, now := c.objects(mapping, o), int64(0)
	err = objects.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err == nil {
		err = poll(ctx, func() error {
			_, err := objects.Get(ctx, o.GetName(), metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			}
			return errors.New("it is still there; has it finalizers?")
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", describe(o), err)
	}
	return nil
}

// objects returns the client for the objects of the kind, in the object's namespace.
func (c *Cluster) objects(mapping *meta.RESTMapping, o *unstructured.Unstructured) dynamic.ResourceInterface {
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.dynamic.Resource(mapping.Resource)
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(namespaceOf(o))
}

// mapping returns the resource of the object's kind. Kinds may be added at any time.
func (c *Cluster) mapping(_ context.Context, o *unstructured.Unstructured) (*meta.RESTMapping, error) {
	kind := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s: %w", describe(o), err)
	}
	return mapping, nil
}

// hasStatus reports whether the status is a subresource.
func (c *Cluster) hasStatus(mapping *meta.RESTMapping) bool {
	list, err := c.discovery.ServerResourcesForGroupVersion(mapping.GroupVersionKind.GroupVersion().String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == mapping.Resource.Resource+"/status" })
}

// each calls do for all objects with several workers, and stops at the first error.
func each(objects []*unstructured.Unstructured, workers int, do func(*unstructured.Unstructured) error) error {
	next := make(chan *unstructured.Unstructured)
	failed := make(chan error, workers)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for o := range next {
				if err := do(o); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	var first error
	for _, o := range objects {
		select {
		case next <- o:
			continue
		case first = <-failed:
		}
		break
	}
	close(next)
	all.Wait()
	if first == nil && len(failed) > 0 {
		first = <-failed
	}
	return first
}

// poll calls ask until it returns no error or the context ends.
func poll(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func namespaceOf(o *unstructured.Unstructured) string {
	if ns := o.GetNamespace(); ns != "" {
		return ns
	}
	return metav1.NamespaceDefault
}

func describe(o *unstructured.Unstructured) string {
	return strings.TrimSpace(o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
}
