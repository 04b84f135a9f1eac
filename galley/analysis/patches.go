package analysis

import (
	"slices"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/patches"
)

// patches reports patches of EnvoyFilters that are ignored, and patches whose effect depends on the undefined order of
// the EnvoyFilters.
func (a *analysis) patches() {
	for _, o := range a.of(kinds.EnvoyFilter) {
		spec := o.Spec.(*networkingv1alpha3.EnvoyFilter)
		for i, p := range spec.ConfigPatches {
			apply, operation, version := p.GetApplyTo(), p.GetPatch().GetOperation(), p.GetMatch().GetProxy().GetProxyVersion()
			field := indexed("spec.configPatches", i) + ".patch.operation"
			code, of := ignored(apply, operation)
			switch {
			case code != "":
				a.report(o, diag.Error, code, field, "use "+of, "%s is ignored where applyTo is %s", operation, apply)
			case spec.Priority != 0 || !relative(operation):
			case version != "":
				a.report(o, diag.Warning, codeVersionedPatch, field, "set priority, or use INSERT_FIRST or ADD",
					"%s depends on what other EnvoyFilters have done before, without a priority that says which come first; "+
						"with proxyVersion %q an upgrade may change that", operation, version)
			default:
				a.report(o, diag.Warning, codeRelativePatch, field, "set priority, or use INSERT_FIRST or ADD",
					"%s depends on what other EnvoyFilters have done before, without a priority that says which come first", operation)
			}
		}
	}
}

// ignored returns the code of the finding for an operation that is ignored, and the operation to use. Both are empty
// for other operations.
func ignored(apply networkingv1alpha3.EnvoyFilter_ApplyTo,
	operation networkingv1alpha3.EnvoyFilter_Patch_Operation) (code, instead string) {
	effective := patches.Operations(apply)
	if len(effective) == 0 || slices.Contains(effective, operation) {
		return "", ""
	}
	switch operation {
	case networkingv1alpha3.EnvoyFilter_Patch_REPLACE:
		code = codeReplacePatch
	case networkingv1alpha3.EnvoyFilter_Patch_ADD:
		code = codeAddPatch
	case networkingv1alpha3.EnvoyFilter_Patch_REMOVE:
		code = codeRemovePatch
	default:
		return "", ""
	}
	return code, effective[0].String()
}

// relative reports whether an operation refers to an object that must exist.
func relative(operation networkingv1alpha3.EnvoyFilter_Patch_Operation) bool {
	switch operation {
	case networkingv1alpha3.EnvoyFilter_Patch_INSERT_BEFORE, networkingv1alpha3.EnvoyFilter_Patch_INSERT_AFTER,
		networkingv1alpha3.EnvoyFilter_Patch_REMOVE, networkingv1alpha3.EnvoyFilter_Patch_REPLACE:
		return true
	}
	return false
}
