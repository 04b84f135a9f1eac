package envoyfilter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	f := &filters{}
	return &feature.Feature{
		Name:        "envoyfilter",
		Kinds:       []*kinds.Kind{kinds.EnvoyFilter},
		Part:        feature.PatchPart,
		Select:      f.sel,
		Unsupported: func(o *kinds.Object) []diag.Diagnostic { return f.of(o).findings },
		Hooks:       feature.Hooks{Patches: f},
	}
}

func spec(o *kinds.Object) *networkingv1alpha3.EnvoyFilter {
	return o.Spec.(*networkingv1alpha3.EnvoyFilter)
}

// sel returns a function that selects objects for a workload of a namespace, in the order in which they apply. Patches
// for other proxies than the workload's are excluded.
func (f *filters) sel(r feature.Reader, namespace string) func(feature.Workload) feature.Selection {
	all := slices.Clone(r.Objects(kinds.EnvoyFilter, r.RootNamespace()))
	if namespace != r.RootNamespace() {
		all = append(all, r.Objects(kinds.EnvoyFilter, namespace)...)
	}
	slices.SortStableFunc(all, func(a, b *kinds.Object) int {
		// Names are compared as in istiod, with a dot appended: a-b comes before a.
		return cmp.Or(cmp.Compare(spec(a).Priority, spec(b).Priority), compareRoot(r.RootNamespace(), a, b), a.Created.Compare(b.Created),
			strings.Compare(a.Name+".", b.Name+"."))
	})
	return func(w feature.Workload) feature.Selection {
		var list []*kinds.Object
		var excluded []feature.Excluded
		for _, o := range all {
			if !selects(o, w) {
				continue
			}
			c := f.of(o)
			var parts []string
			for i := range c.patches {
				if !c.patches[i].matchesProxy(w) {
					parts = append(parts, strconv.Itoa(i))
				}
			}
			if len(parts) == len(c.patches) {
				continue
			}
			list = append(list, o)
			if len(parts) > 0 {
				excluded = append(excluded, feature.Excluded{Object: o, Parts: strings.Join(parts, " ")})
			}
		}
		s := feature.Of(list...)
		s.Excluded = frozen.ListOf(excluded...)
		return s
	}
}

// compareRoot orders objects of the root namespace before others.
func compareRoot(root string, a, b *kinds.Object) int {
	switch x, y := a.Namespace == root, b.Namespace == root; {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// selects reports whether an object applies to a workload.
func selects(o *kinds.Object, w feature.Workload) bool {
	s := spec(o)
	if len(s.TargetRefs) > 0 {
		return feature.Matches(o, w)
	}
	return w.Labels.Match(s.GetWorkloadSelector().GetLabels())
}

// matchesProxy reports whether a patch is usable, and applies to the proxy of a workload.
func (p *compiledPatch) matchesProxy(w feature.Workload) bool {
	if !p.usable || p.version != nil && !p.version.MatchString(w.Version) || p.GetMatch().GetProxy().GetProxyVersion() != "" &&
		w.Version == "" {
		return false
	}
	for key, value := range p.GetMatch().GetProxy().GetMetadata() {
		if w.Metadata == nil {
			return false
		}
		if has, ok := w.Metadata(key); !ok || has != value {
			return false
		}
	}
	return true
}

// each calls yield for each patch of a Selection in order.
func (f *filters) each(s feature.Selection) func(yield func(feature.Patch, *compiledPatch) bool) {
	return func(yield func(feature.Patch, *compiledPatch) bool) {
		for o := range s.Objects.All {
			var excluded map[string]bool // reading a nil map is allowed
			for e := range s.Excluded.All {
				if e.Object == o {
					excluded = map[string]bool{}
					for part := range strings.FieldsSeq(e.Parts) {
						excluded[part] = true
					}
				}
			}
			c := f.of(o)
			for i := range c.patches {
				if p := &c.patches[i]; p.usable && !(len(excluded) > 0 && excluded[strconv.Itoa(i)]) && !yield(feature.Patch{Object: o, Index: i}, p) {
					return
				}
			}
		}
	}
}
