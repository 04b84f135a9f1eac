package diff

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// Cause is an object because of which a resource differs.
type Cause struct {
	kinds.Key
	Position string // where the object is that does it, or did; empty where it came from an API server
	Deleted  bool
}

// Step is what differs between a Snapshot and one in which some objects more have changed.
type Step struct {
	Causes []Cause // those objects
	*Difference
}

// Attribute says of each change of d which objects are why. The steps lead, one after the other, from the View before
// to the View after: an object is a cause of a resource if the resource that proxies had is on the way to the one that
// they have, and the object's step led from one to the next.
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
		// Steps come in order, so that one pass finds what the first resource became.
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
