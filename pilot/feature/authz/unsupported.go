package authz

import (
	"strconv"

	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupported returns findings about a policy that does not do what it seems to.
func unsupported(o *kinds.Object) []diag.Diagnostic {
	var found []diag.Diagnostic
	value, ok := o.Annotations[kinds.AnnotationDryRun]
	if _, err := strconv.ParseBool(value); ok && err != nil {
		found = append(found, diag.Diagnostic{
			Severity: diag.Warning, Code: "InvalidValue", Field: "metadata.annotations[" + strconv.Quote(kinds.AnnotationDryRun) + "]",
			Message: strconv.Quote(value) + " is no boolean: the policy is enforced", Fix: `write "true" or "false"`,
		})
	}
	elsewhere := func(field string, r *typev1beta1.PolicyTargetReference) {
		if ns := r.GetNamespace(); ns != "" && ns != o.Namespace {
			found = append(found, feature.NotImplemented(field+".namespace", "a target in another namespace; "+o.Namespace+" is looked in", "remove it, and put the policy into namespace "+ns))
		}
	}
	elsewhere("spec.targetRef", spec(o).TargetRef)
	for i, r := range spec(o).TargetRefs {
		elsewhere("spec.targetRefs["+strconv.Itoa(i)+"]", r)
	}
	return found
}
