package wait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/config/file"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

// readFiles returns the objects in files of kinds that the control plane reads. Objects of other kinds have a warning.
// It fails if an object has an error, because no server would have it in force as it is written.
func readFiles(ctx context.Context, stdin io.Reader, files []string, namespace string, warnings io.Writer) ([]*kinds.Object, error) {
	l := limits.Default()
	texts, err := file.Read(files, stdin, l)
	if err != nil {
		return nil, err
	}
	texts.Namespace = namespace
	objects, found, err := inspect.Texts(ctx, ingest.Options{Limits: l}, texts)
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, d := range found {
		if d.Severity == diag.Error {
			wrong = append(wrong, d.String())
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("the files have errors, and are not in force as they are written:\n%s", strings.Join(wrong, "\n"))
	}
	for _, u := range texts.Objects() {
		if kinds.Named(u.GroupVersionKind().Group, u.GetKind()) == nil {
			fmt.Fprintf(warnings, "warning: %s %s is of a kind that no proxy is configured by: it is not awaited\n", u.GetKind(), u.GetName())
		}
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s: the files contain no object of a known kind", strings.Join(files, ", "))
	}
	return objects, nil
}

// generationOf returns the generation of an object in the cluster. It is 0 for a kind without generations.
func (f *flags) generationOf(ctx context.Context, k kinds.Key) (int64, error) {
	config, err := f.Connection()
	if err != nil {
		return 0, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	err = errors.New("there is no version of its kind")
	for _, version := range k.Kind.Versions { // an API server may have an older version alone
		var m *metav1.PartialObjectMetadata
		gvr := schema.GroupVersionResource{Group: k.Kind.Group, Version: version, Resource: k.Kind.Plural}
		if m, err = client.Resource(gvr).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{}); err == nil {
			return m.Generation, nil
		} else if !apierrors.IsNotFound(err) {
			break
		}
	}
	return 0, err
}
