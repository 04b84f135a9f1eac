package controller

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	reviews "github.com/istiod-lite/istiod-lite/galley/webhook"
)

// refused is how an API server begins what it says of an object that a webhook has refused. What it says of a webhook
// that it could not ask differs.
const refused = "admission webhook %q denied the request: " + reviews.Invalid

// probe has an API server create an invalid object, without storing it, that a webhook is asked about. It returns why
// the webhook is not known to work; empty if it refused the object. Other webhooks of ours may be asked about the same
// object, and the first to refuse is named.
func (c *Controller) probe(ctx context.Context, h hook, ours []hook) string {
	set, ok := h.labelled()
	if !ok {
		return "its objectSelector selects no object that could be tried"
	}
	k := kinds.Gateway // without servers: the CustomResourceDefinition allows that, and the webhook does not
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetAPIVersion(k.APIVersion(k.Versions[0]))
	u.SetKind(k.Name)
	u.SetName("istiod-validation-dry-run")
	u.SetNamespace(c.o.Namespace)
	u.SetLabels(set)
	resource := schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Plural}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	_, err := c.o.Client.Resource(resource).Namespace(c.o.Namespace).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return "an invalid object is not refused yet: the webhook does not answer, or is not asked"
	}
	for _, other := range ours {
		if strings.Contains(err.Error(), fmt.Sprintf(refused, other.name)) {
			return ""
		}
	}
	return "an invalid object cannot be tried: " + err.Error()
}
