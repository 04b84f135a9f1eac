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
// webhook that it could not reach begins differently.
const refused = "admission webhook %q denied the request: " + reviews.Invalid

// Reasons why the API server may create objects without asking a webhook.
var (
	errNotRefused  = errors.New("an invalid object is not refused yet: the webhook does not answer, or is not asked")
	errNotSelected = errors.New("its objectSelector selects no object that could be tried")
)

// probe creates an invalid object as a dry run. The API server asks the webhook h about it. probe returns nil if a
// webhook of ours refused the object, and else why h is not known to work. The API server may ask several of our
// webhooks about the object, and names the first that refuses.
func (r *Reconciler) probe(ctx context.Context, h hook, ours []hook) error {
	set, ok := h.labelled()
	if !ok {
		return errNotSelected
	}
	u := object(kinds.Gateway)
	u.Object["spec"] = map[string]any{} // without servers, which the CustomResourceDefinition allows and the webhook refuses
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
