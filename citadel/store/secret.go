package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Secret is a Store in a Kubernetes Secret.
type Secret struct {
	Client dynamic.Interface
	// Namespace and Name of the Secret; the name is SelfSigned, or Cacerts.
	Namespace, Name string
	// Earlier is the name of a Secret whose State is used instead if it exists; empty for none.
	Earlier string
}

// Names of Secrets that hold a State. An operator may plug in a CA as Cacerts too; generatedFile marks one that a
// server has generated.
const (
	SelfSigned = "istio-ca-secret"
	Cacerts    = "cacerts"
)

// generatedFile marks a CA in the Secret Cacerts that a server has generated, and therefore rotates.
const generatedFile = "istio-generated"

// secretType is the type that istiod gives the Secret.
const secretType = names.SecretTypeCA

// String returns the names of the Secret.
func (s Secret) String() string { return "secret " + s.Namespace + "/" + s.Name }

func (s Secret) client() dynamic.ResourceInterface {
	return s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(s.Namespace)
}

// Load returns the Secret's data. The version is the Secret's name and resourceVersion.
func (s Secret) Load(ctx context.Context) (map[string][]byte, string, error) {
	for _, name := range []string{s.Earlier, s.Name} {
		if name == "" {
			continue
		}
		o, err := s.client().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w: secret %s/%s: %w", ErrAway, s.Namespace, name, err)
		}
		files, err := s.files(o)
		if err == nil && name == Cacerts && files[generatedFile] == nil {
			err = fmt.Errorf("secret %s/%s is an operator's own CA: mount it where ROOT_CA_DIR says, or unset USE_CACERTS_FOR_SELF_SIGNED_CA",
				s.Namespace, name)
		}
		return files, name + "/" + o.GetResourceVersion(), err
	}
	return nil, "", nil
}

func (s Secret) files(o *unstructured.Unstructured) (map[string][]byte, error) {
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("%w: secret %s/%s: %w", ErrBroken, s.Namespace, o.GetName(), err)
	}
	files := map[string][]byte{}
	for name, text := range data {
		if files[name], err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, fmt.Errorf("%w: secret %s/%s: %s: no base64", ErrBroken, s.Namespace, o.GetName(), name)
		}
	}
	return files, nil
}

// Save replaces the Secret's data of a version.
func (s Secret) Save(ctx context.Context, files map[string][]byte, version string) error {
	name, resource, had := strings.Cut(version, "/")
	if !had {
		name = s.Name
	}
	data := map[string]any{}
	for file, text := range files {
		data[file] = base64.StdEncoding.EncodeToString(text)
	}
	if name == Cacerts {
		data[generatedFile] = ""
	}
	if !had {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": secretType, "data": data}}
		o.SetName(name)
		_, err := s.client().Create(ctx, o, metav1.CreateOptions{})
		return conflict(err, had)
	}
	o, err := s.client().Get(ctx, name, metav1.GetOptions{}) // labels and annotations are kept
	switch {
	case err != nil:
		return conflict(err, had)
	case o.GetResourceVersion() != resource:
		return ErrConflict
	}
	o.Object["data"] = data
	_, err = s.client().Update(ctx, o, metav1.UpdateOptions{})
	return conflict(err, had)
}

// conflict returns ErrConflict if another write came first, and ErrAway for any other error of a write.
func conflict(err error, had bool) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), had && apierrors.IsNotFound(err):
		return ErrConflict
	}
	return fmt.Errorf("%w: %w", ErrAway, err)
}
