package controller

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	reviews "github.com/istiod-lite/istiod-lite/galley/webhook"
)

// refused is the beginning of the API server's message about an object that a webhook has refused. The message about a
// webhook that it could not ask begins otherwise.
const refused = "admission webhook %q denied the request: " + reviews.Invalid

// probe creates an invalid object, as a dry run, that the API server asks a webhook about. It returns why the webhook
// is not known to work; empty if it refused the object. The API server may ask other webhooks of ours about the same
// object, and names the first that refuses.
func (r *Reconciler) probe(ctx context.Context, h hook, ours []hook) string {
	set, ok := h.labelled()
	if !ok {
		return "its objectSelector selects no object that could be tried"
	}
	u := object(kinds.Gateway)
	u.Object["spec"] = map[string]any{} // without servers: the CustomResourceDefinition allows that, and the webhook does not
	u.SetName("istiod-validation-dry-run")
	u.SetNamespace(r.o.Namespace)
	u.SetLabels(set)
	err := r.client.Create(ctx, u, client.DryRunAll)
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
