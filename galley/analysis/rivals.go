package analysis

import (
	"cmp"
	"fmt"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// maxRivals bounds the rivals of one object that findings name.
const maxRivals = 16

// rivals are the objects that take precedence over one object, in the order in which they were found.
type rivals struct {
	*analysis
	object *kinds.Object
	named  map[string]bool
	more   bool
}

// rivalsOf returns an empty list of rivals of an object.
func (a *analysis) rivalsOf(o *kinds.Object) *rivals { return &rivals{analysis: a, object: o} }

// name reports whether to name a rival at a field: each rival once, and at most maxRivals.
func (r *rivals) name(field string, winner *kinds.Object) bool {
	key := fmt.Sprint(field, " ", winner)
	switch {
	case r.named[key]:
		return false
	case len(r.named) == maxRivals:
		r.more = true
		return false
	case r.named == nil:
		r.named = map[string]bool{}
	}
	r.named[key] = true
	return true
}

// end adds a finding if more than maxRivals were found.
func (r *rivals) end(field string) {
	if r.more {
		r.report(r.object, diag.Info, codeLimit, field, "mend those first",
			"more than %d others come first in the same way: only these are named", maxRivals)
	}
}

// owned is a workload that one object may own, for one purpose.
type owned struct {
	*workload
	purpose string
}

// ownedSelection is the workloads of a selector, for one purpose.
type ownedSelection struct {
	selectionKey
	purpose string
}

// loss is a workload that an object selects and another object owns.
type loss struct {
	winner *kinds.Object
	at     *workload
}

// owners records which object owns each workload. Objects claim workloads in order of precedence.
type owners struct {
	*analysis
	owner    map[owned]*kinds.Object
	losses   map[ownedSelection][]loss // losses to repeat for the next object with the same selector
	compared comparisons
}

func (a *analysis) newOwners() *owners {
	return &owners{analysis: a, owner: map[owned]*kinds.Object{},
		losses: map[ownedSelection][]loss{}, compared: comparisons{most: maxComparisons}}
}

// claim records that an object owns, for a purpose, the workloads of its labels and namespaces that have no owner yet.
// It returns one loss for each object that owns some of the others, at most maxRivals+1. Objects of one namespace with
// the same selector have the same losses, so the workloads are compared only for the first of them.
func (x *owners) claim(o *kinds.Object, labels map[string]string, purpose string, namespaces ...string) []loss {
	key := ownedSelection{selectionKey{o.Namespace, written(labels)}, purpose}
	if known, ok := x.losses[key]; ok {
		return known
	}
	x.compared.begin()
	var list []loss
	var own *workload
	seen := map[*kinds.Object]bool{}
	for _, ns := range namespaces {
		for w := range x.selected(ns, labels) {
			if !x.compared.more() {
				break
			}
			winner := x.owner[owned{w, purpose}]
			switch {
			case winner == nil:
				x.owner[owned{w, purpose}] = o
				own = cmp.Or(own, w)
			case !seen[winner] && len(list) <= maxRivals:
				seen[winner] = true
				list = append(list, loss{winner, w})
			}
		}
	}
	if x.compared.refused {
		x.report(o, diag.Info, codeLimit, "spec", "select fewer workloads",
			"it selects too many workloads: not all of them are compared with those of other objects")
	}
	x.losses[key] = list
	if own != nil {
		x.losses[key] = append(list[:len(list):len(list)], loss{o, own})
	}
	return list
}
