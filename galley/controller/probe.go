package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	reviews "github.com/istiod-lite/istiod-lite/galley/webhook"
)

// refused is the beginning of the API server's message about an object that a webhook has refused. The message about a
// webhook that it could not ask begins otherwise.
const refused = "admission webhook %q denied the request: " + reviews.Invalid

// Problems of a webhook that the API server may create objects without.
var (
	errNotRefused  = errors.New("an invalid object is not refused yet: the webhook does not answer, or is not asked")
	errNotSelected = errors.New("its objectSelector selects no object that could be tried")
)

// probe creates an invalid object, as a dry run, that the API server asks a webhook about. It returns why the webhook
// is not known to work; nil if it refused the object. The API server may ask other webhooks of ours about the same
// object, and names the first that refuses.
func (r *Reconciler) probe(ctx context.Context, h hook, ours []hook) error {
	set, ok := h.labelled()
	if !ok {
		return errNotSelected
	}
	u := object(kinds.Gateway)
	u.Object["spec"] = map[string]any{} // without servers: the CustomResourceDefinition allows that, and the webhook does not
	u.SetName("istiod-validation-dry-run")
	u.SetNamespace(r.o.Namespace)
	u.SetLabels(set)
	err := r.client.Create(ctx, u, client.DryRunAll)
	if err == nil {
		return errNotRefused
	}
	for _, other := range ours {
		if strings.Contains(err.Error(), fmt.Sprintf(refused, other.name)) {
			return nil
		}
	}
	return fmt.Errorf("an invalid object cannot be tried: %w", err)
}
