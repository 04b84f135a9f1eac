package scope

import (
	"slices"
)

// Reassign lists the proxies whose cohort may differ from the one at the previous Snapshot. It does not cover proxies
// of unknown workloads: their cohort may change whenever services or endpoints change.
type Reassign struct {
	All        bool
	Namespaces []string // namespaces of the proxies, sorted
}

// Includes reports whether the cohort of a proxy in a namespace may differ.
func (r *Reassign) Includes(namespace string) bool {
	if r.All {
		return true
	}
	_, ok := slices.BinarySearch(r.Namespaces, namespace)
	return ok
}

// add adds the proxies of a namespace.
func (r *Reassign) add(namespace string) {
	if i, ok := slices.BinarySearch(r.Namespaces, namespace); !ok && !r.All {
		r.Namespaces = slices.Insert(r.Namespaces, i, namespace)
	}
}
