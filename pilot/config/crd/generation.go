package crd

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubemetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Generation returns the generation that an API server has of an object now. It is 0 for a kind without generations.
// The error is apierrors.IsNotFound if there is no such object.
func Generation(ctx context.Context, client *rest.Config, k kinds.Key) (int64, error) {
	c, err := kubemetadata.NewForConfig(client)
	if err != nil {
		return 0, err
	}
	err = fmt.Errorf("the kind %s has no version", k.Kind.Name)
	for _, version := range k.Kind.Versions { // an API server may have an older version alone
		var m *metav1.PartialObjectMetadata
		resource := c.Resource(schema.GroupVersionResource{Group: k.Kind.Group, Version: version, Resource: k.Kind.Plural})
		if m, err = resource.Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{}); err == nil {
			return m.Generation, nil
		} else if !apierrors.IsNotFound(err) {
			break
		}
	}
	return 0, err
}
