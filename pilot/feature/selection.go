package feature

import (
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
