package envoyfilter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// codeLeftOut is the code of findings about patches that are not applied.
const codeLeftOut = "PatchLeftOut"

// Findings returns findings about patches that are left out of resources, one for each patch, and about patches that
// match nothing.
func (f *filters) Findings(uses []feature.PatchUse, notes []feature.PatchNote) []diag.Diagnostic {
	noted := map[feature.Patch]bool{}
	failed := map[feature.Patch][]feature.PatchNote{}
	for _, n := range notes {
		if noted[n.Patch] = true; n.Reason != "" {
			failed[n.Patch] = append(failed[n.Patch], n)
		}
	}
	var list []diag.Diagnostic
	for p, notes := range failed {
		list = append(list, leftOut(p, notes))
	}
	for _, use := range uses {
		for p, c := range f.each(use.Selection) {
			if !noted[p] && c.sought(use) {
				noted[p] = true
				list = append(list, finding(p, feature.PatchNoMatch, "no proxy that the object selects has a matching resource",
					"compare the match with a proxy's configuration, as pilot-discovery translate shows it"))
			}
		}
	}
	return list
}

// leftOut returns the finding about a patch that is left out of resources.
func leftOut(p feature.Patch, notes []feature.PatchNote) diag.Diagnostic {
	first := slices.MinFunc(notes, func(a, b feature.PatchNote) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Reason, b.Reason))
	})
	resources := lists.SetOf(notes, func(n feature.PatchNote) string { return n.Resource })
	of := ""
	if first.Resource != "" {
		of = " of " + first.Resource
	}
	if more := len(resources) - 1; more > 0 {
		of += fmt.Sprintf(" and %d more", more)
	}
	return finding(p, codeLeftOut, "the patch is left out"+of+": "+first.Reason, "correct it, or match fewer resources")
}

// finding returns a finding about a patch.
func finding(p feature.Patch, code, message, fix string) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Warning, Code: code, Object: p.Object.String(), Field: fmt.Sprintf("spec.configPatches[%d]", p.Index),
		Message: message, Fix: fix,
	}.At(p.Object.Position)
}

// sought reports whether a resource was made to which the patch would apply if it matched.
func (p *compiledPatch) sought(use feature.PatchUse) bool {
	inbound := p.inContext(feature.Inbound) && !use.Gateway
	if use.Gateway && !p.inContext(feature.Gateway) || !use.Gateway && !inbound && !p.inContext(feature.Outbound) {
		return false
	}
	switch p.GetApplyTo() {
	case toCluster:
		return use.Types[envoy.ClusterType]
	case toListener, toChain, toNetworkFilter, toHTTPFilter, toListenerFilter:
		return use.Types[envoy.ListenerType]
	case toRoutes, toHost, toRoute:
		return use.Types[envoy.ListenerType] && (use.Types[envoy.RouteType] || !p.inContext(feature.Outbound) && inbound)
	}
	return false // proxies may not subscribe to the extension
}
