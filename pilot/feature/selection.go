package feature

import (
	"slices"

	typev1beta1 "istio.io/api/type/v1beta1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// Reader is what a feature may read to select objects.
type Reader interface {
	// Objects returns the objects of a kind in a namespace by precedence.
	Objects(kind *kinds.Kind, namespace string) []*kinds.Object
	// RootNamespace returns the namespace of objects that apply to all namespaces.
	RootNamespace() string
}

// Workload is a workload for which objects are selected.
type Workload struct {
	Type   node.Type // of its proxy
	Labels map[string]string
}

// Selection is the objects of one feature that apply to a workload. It is comparable.
type Selection struct {
	Objects frozen.List[*kinds.Object] // by precedence
}

// Of returns the Selection of some objects.
func Of(objects ...*kinds.Object) Selection { return Selection{frozen.ListOf(objects...)} }

// Empty reports whether no object applies.
func (s Selection) Empty() bool { return s.Objects.Empty() }

// Policies returns a function that selects objects of some kinds for a workload of a namespace: those of the root
// namespace, then those of its own, to which it is a match.
func Policies(r Reader, namespace string, matches func(*kinds.Object, Workload) bool, of ...*kinds.Kind) func(Workload) Selection {
	var all []*kinds.Object
	namespaces := []string{r.RootNamespace(), namespace}
	for _, ns := range slices.Compact(namespaces) {
		for _, kind := range of {
			all = append(all, r.Objects(kind, ns)...)
		}
	}
	return func(w Workload) Selection {
		var list []*kinds.Object
		for _, o := range all {
			if matches(o, w) {
				list = append(list, o)
			}
		}
		return Of(list...)
	}
}

// Matches reports whether the selector of a policy matches a workload. A policy without one matches every workload.
func Matches(o *kinds.Object, w Workload) bool {
	p, ok := o.Spec.(interface {
		GetSelector() *typev1beta1.WorkloadSelector
	})
	return !ok || kinds.Selects(p.GetSelector().GetMatchLabels(), w.Labels)
}

// Selections are the Selections of several features, without empty ones. They are comparable.
type Selections struct{ list frozen.List[named] }

// named is the Selection of a feature.
type named struct {
	feature string
	Selection
}

// Of returns the Selection of a feature.
func (s Selections) Of(f *Feature) Selection {
	for n := range s.list.All {
		if n.feature == f.Name {
			return n.Selection
		}
	}
	return Selection{}
}

// Select selects the objects of each feature for a workload. It returns a function that returns the Selections of a
// half, or of several.
func Select(features []*Feature, r Reader, namespace string, w Workload) func(Half) Selections {
	var list []named
	var halves []Half
	for _, f := range features {
		if f.Select == nil {
			continue
		}
		if s := f.Select(r, namespace)(w); !s.Empty() {
			list, halves = append(list, named{f.Name, s}), append(halves, f.Half)
		}
	}
	return func(half Half) Selections {
		var in []named
		for i, n := range list {
			if halves[i]&half != 0 {
				in = append(in, n)
			}
		}
		return Selections{frozen.ListOf(in...)}
	}
}
