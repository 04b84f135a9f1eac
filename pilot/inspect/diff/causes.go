package diff

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Cause is an object whose change causes a difference.
type Cause struct {
	kinds.Key
	Position string // position of the object, before or after; empty if it came from an API server
	Deleted  bool
}

// Step is the difference between a Snapshot and the next one, in which more objects have changed.
type Step struct {
	Causes []Cause // objects that changed in this step
	*Difference
}

// Attribute finds the causes of each change of d. The steps lead from the View before to the View after. An object is a
// cause of a resource's change if its step changed the resource, on the way from the version that proxies had to the
// one that they have.
func Attribute(d *Difference, steps []Step) {
	type edge struct {
		change *Change
		step   int
	}
	type place struct{ typeURL, name string }
	edges := map[place][]edge{}
	for i, s := range steps {
		for _, x := range s.Changes {
			p := place{x.typeURL, x.Name}
			edges[p] = append(edges[p], edge{x, i})
		}
	}
	for _, x := range d.Changes {
		// Steps come in order, so one pass finds all later versions of the first resource.
		list := edges[place{x.typeURL, x.Name}]
		reached := map[string]bool{version(x.Had): true}
		var forward []edge
		for _, e := range list {
			if reached[version(e.change.Had)] {
				reached[version(e.change.Has)] = true
				forward = append(forward, e)
			}
		}
		wanted := map[string]bool{version(x.Has): true}
		var found []int
		for _, e := range slices.Backward(forward) {
			if wanted[version(e.change.Has)] {
				wanted[version(e.change.Had)] = true
				found = append(found, e.step)
			}
		}
		slices.Sort(found)
		x.Causes = nil
		for _, i := range slices.Compact(found) {
			x.Causes = append(x.Causes, steps[i].Causes...)
		}
	}
}
