package store

import (
	"context"
	"encoding/base64"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Secret is a Kubernetes Secret that holds a State.
type Secret struct {
	Client dynamic.Interface
	// Namespace and Name of the Secret; the name is istio-ca-secret, or cacerts.
	Namespace, Name string
}

// secretType is what istiod gives the Secret.
const secretType = "istio.io/ca-root"

func (s Secret) client() dynamic.ResourceInterface {
	return s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(s.Namespace)
}

// Load returns the Secret's data.
func (s Secret) Load(ctx context.Context) (map[string][]byte, string, error) {
	o, err := s.client().Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return nil, "", fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	files := map[string][]byte{}
	for name, text := range data {
		if files[name], err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, "", fmt.Errorf("secret %s/%s: %s: no base64", s.Namespace, s.Name, name)
		}
	}
	return files, o.GetResourceVersion(), nil
}

// Save writes the Secret's data over those of a version.
func (s Secret) Save(ctx context.Context, files map[string][]byte, version string) error {
	data := map[string]any{}
	for name, text := range files {
		data[name] = base64.StdEncoding.EncodeToString(text)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": secretType}}
	o.SetName(s.Name)
	write := s.client().Create
	if version != "" {
		had, err := s.client().Get(ctx, s.Name, metav1.GetOptions{}) // labels and annotations stay
		switch {
		case apierrors.IsNotFound(err):
			return ErrConflict
		case err != nil:
			return err
		case had.GetResourceVersion() != version:
			return ErrConflict
		}
		o = had
		write = func(ctx context.Context, o *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
			return s.client().Update(ctx, o, metav1.UpdateOptions{})
		}
	}
	o.Object["data"] = data
	_, err := write(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || version != "" && apierrors.IsNotFound(err) {
		return ErrConflict
	}
	return err
}
