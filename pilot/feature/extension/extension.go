package extension

import (
	"cmp"
	"slices"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Phase is the place of an extension among the filters of a proxy.
type Phase extensionsv1alpha1.PluginPhase

// Phases, in the order of their filters: before requests are authenticated, before they are authorized, after that, and
// after all of these.
const (
	Authn = Phase(extensionsv1alpha1.PluginPhase_AUTHN)
	Authz = Phase(extensionsv1alpha1.PluginPhase_AUTHZ)
	Stats = Phase(extensionsv1alpha1.PluginPhase_STATS)
	Last  = Phase(extensionsv1alpha1.PluginPhase_UNSPECIFIED_PHASE)
)

// New returns the feature of one phase.
func New(p Phase) *feature.Feature {
	f := &feature.Feature{
		Name:  "extension-" + map[Phase]string{Authn: "authn", Authz: "authz", Stats: "stats", Last: "last"}[p],
		Kinds: []*kinds.Kind{kinds.WasmPlugin, kinds.TrafficExtension},
		Part:  feature.InboundPart | feature.ListenersPart,
		Select: func(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
			all := ordered(r, p, namespace)
			return func(w feature.Workload) feature.Selection {
				list := lists.Filter(all, func(o *kinds.Object) bool { return applies(o, w) })
				return feature.Of(list...)
			}
		},
		Hooks: feature.Hooks{
			HTTPFilters: httpFilters, NetworkFilters: networkFilters,
			Extensions: modules{},
		},
	}
	if p == Authn { // all phases read the same kinds; one of them makes the findings
		f.Unsupported = unsupported
	}
	return f
}

// ordered returns the objects of a phase in the root namespace and another one in the order of their filters: by
// descending priority, those without one last, then by age, namespace and name.
func ordered(r feature.Reader, p Phase, namespace string) []*kinds.Object {
	var list []*kinds.Object
	for _, ns := range slices.Compact([]string{r.RootNamespace(), namespace}) {
		for _, kind := range []*kinds.Kind{kinds.WasmPlugin, kinds.TrafficExtension} {
			for _, o := range r.Objects(kind, ns) {
				if read(o).phase == p {
					list = append(list, o)
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b *kinds.Object) int {
		return cmp.Or(
			cmp.Compare(read(b).priority, read(a).priority), a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(ownName(a), ownName(b)),
		)
	})
	return list
}

// applies reports whether an object applies to a workload: by its targets, which are in force if they are Gateways, or
// else by its selector.
func applies(o *kinds.Object, w feature.Workload) bool {
	refs := feature.Targets(o)
	if len(refs) == 0 {
		return feature.Matches(o, w)
	}
	return slices.ContainsFunc(refs, func(r *typev1beta1.PolicyTargetReference) bool {
		return isGateway(r) && w.IsTarget(r, o.Namespace)
	})
}

func isGateway(r *typev1beta1.PolicyTargetReference) bool {
	return r.GetGroup() == kinds.KubeGateway.Group && r.GetKind() == kinds.KubeGateway.Name
}
