package controllers

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// NewObject returns an empty object of a kind in a version of its API.
func NewObject(k *kinds.Kind, version string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Name})
	return u
}

// Reduce returns a transform of watched objects, which leaves their names, their versions and what keep copies. An
// object may be reduced twice, so keep copies only what it reads at the same place.
func Reduce(keep func(from, to *unstructured.Unstructured)) cache.TransformFunc {
	return func(object any) (any, error) {
		from, ok := object.(*unstructured.Unstructured)
		if !ok {
			return object, nil
		}
		to := &unstructured.Unstructured{Object: map[string]any{}}
		to.SetGroupVersionKind(from.GroupVersionKind())
		to.SetNamespace(from.GetNamespace())
		to.SetName(from.GetName())
		to.SetResourceVersion(from.GetResourceVersion())
		keep(from, to)
		return to, nil
	}
}
