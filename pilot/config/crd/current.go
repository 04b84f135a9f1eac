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
	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Version identifies the version of an object that an API server has.
type Version struct {
	UID        string
	Generation int64         // 0 for a kind of which a Source reads no generations
	Object     *kinds.Object // object of such a kind, as a Source reads it; nil for other kinds
}

// Current returns the version of an object that an API server has now. The error is apierrors.IsNotFound if there is no
// such object.
func Current(ctx context.Context, client *rest.Config, k kinds.Key) (Version, error) {
	c, err := kubemetadata.NewForConfig(client)
	if err != nil {
		return Version{}, err
	}
	err = fmt.Errorf("the kind %s has no version", k.Kind.Name)
	for _, version := range k.Kind.Versions { // an API server may have an older version alone
		var m *metav1.PartialObjectMetadata
		resource := schema.GroupVersionResource{Group: k.Kind.Group, Version: version, Resource: k.Kind.Plural}
		if m, err = c.Resource(resource).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{}); err == nil {
			if coreOf(k.Kind) == nil {
				return Version{UID: string(m.UID), Generation: m.Generation}, nil
			}
			o, err := currentObject(ctx, client, k)
			if err != nil {
				return Version{}, err
			}
			return Version{UID: o.UID, Object: o}, nil
		} else if !apierrors.IsNotFound(err) {
			break
		}
	}
	return Version{}, err
}

// currentObject reads an object as a Source reads it.
func currentObject(ctx context.Context, client *rest.Config, k kinds.Key) (*kinds.Object, error) {
	l, err := List(ctx, ListOptions{Client: client, Limits: limits.Default()})
	if err != nil {
		return nil, err
	}
	key := k
	key.Cluster = ""
	list, err := l.Get(ctx, []kinds.Key{key})
	switch {
	case err != nil:
		return nil, err
	case len(list) == 1:
		return list[0].Object, nil
	case l.Unknown(key):
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: k.Kind.Group, Resource: k.Kind.Plural}, k.Name, nil)
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: k.Kind.Group, Resource: k.Kind.Plural}, k.Name)
}
