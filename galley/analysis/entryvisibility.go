package analysis

import (
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// entryVisibility reports ServiceEntries that serviceEntryVisibility of the mesh hides from namespaces of their
// exportTo. An entry without exportTo asks for nothing that a limit to its own namespace takes away.
func (a *analysis) entryVisibility() {
	if a.visibility == nil {
		return
	}
	for _, o := range a.of(kinds.ServiceEntry) {
		written := o.Spec.(*networkingv1.ServiceEntry).ExportTo
		visibility, hidden := a.visibility.For(o.Namespace, a.labels[o.Namespace]), slices.Contains(a.entryExports(o), "~")
		beyond := slices.ContainsFunc(written, func(to string) bool { return to != "." && to != o.Namespace })
		switch {
		case slices.Contains(written, "~"), visibility == meshv1alpha1.ServiceEntryVisibility_PUBLIC:
		case visibility == meshv1alpha1.ServiceEntryVisibility_NONE:
			a.report(o, diag.Warning, codeNotExported, "metadata.namespace",
				"remove it, or allow the namespace in the mesh's serviceEntryVisibility",
				"the mesh's serviceEntryVisibility lets no proxy see ServiceEntries of namespace %s: the entry has no effect", o.Namespace)
		case hidden:
			a.report(o, diag.Warning, codeNotExported, "spec.exportTo", `write ["."], or allow the namespace in the mesh's serviceEntryVisibility`,
				"the mesh's serviceEntryVisibility limits the entry to namespace %s, which is not in exportTo: no proxy sees it", o.Namespace)
		case beyond:
			a.report(o, diag.Warning, codeNotExported, "spec.exportTo", `write ["."], or allow the namespace in the mesh's serviceEntryVisibility`,
				"the mesh's serviceEntryVisibility limits the entry to namespace %s: proxies of other namespaces do not see it", o.Namespace)
		}
	}
}
