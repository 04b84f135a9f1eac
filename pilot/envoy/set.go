package envoy

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Set holds the resources of one type for one half of a cohort, sorted by name. It never changes once made. A Set that
// was made from another one shares with it what they have in common, and comparing the two costs no more than their
// differences. The nil Set is empty.
type Set struct {
	table  frozen.Table[*Resource]
	divide func() (heads, hosts *Set)
}

// NewSet sorts resources and returns the Set of them. Of several with one name the first stays.
func NewSet(resources []*Resource) *Set {
	if !slices.IsSortedFunc(resources, CompareNames) {
		slices.SortStableFunc(resources, CompareNames)
	}
	resources = slices.CompactFunc(resources, func(a, b *Resource) bool { return a.Name == b.Name })
	return newSet(frozen.TableOf(CompareNames, resources))
}

func newSet(t frozen.Table[*Resource]) *Set {
	s := &Set{table: t}
	s.divide = sync.OnceValues(s.divided)
	return s
}

// CompareNames orders resources by name.
func CompareNames(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }

// With returns a Set without the removed resources, as far as it has them, and with the added ones. It returns the same
// Set where both lists are empty.
func (s *Set) With(removed, added []*Resource) *Set {
	if len(removed)+len(added) == 0 {
		return s
	}
	if s == nil {
		return NewSet(slices.Clone(added))
	}
	e, t := &frozen.Edit{}, s.table
	for _, r := range removed {
		if is, ok := t.Get(r); ok && is == r {
			t.Delete(e, r)
		}
	}
	for _, r := range added {
		t.Put(e, r)
	}
	e.Done()
	return newSet(t)
}

// Divided returns the Set as it is sent to clients that take virtual hosts by VHDS, and those virtual hosts. They are
// made once.
func (s *Set) Divided() (heads, hosts *Set) {
	if s == nil {
		return nil, nil
	}
	return s.divide()
}

func (s *Set) divided() (heads, hosts *Set) {
	var first, routes []*Resource
	for r := range s.All {
		if r.Head != nil {
			first, routes = append(first, r.Head), append(routes, r)
		}
	}
	if routes == nil {
		return s, nil
	}
	return s.With(nil, first), concatHosts(routes)
}

// concatHosts returns the virtual hosts of route configurations. Those of one configuration are adjacent unless the
// name of another one continues its name after a slash.
func concatHosts(routes []*Resource) *Set {
	slices.SortFunc(routes, func(a, b *Resource) int { return strings.Compare(a.Name+"/", b.Name+"/") })
	tables := make([]frozen.Table[*Resource], len(routes))
	for i, r := range routes {
		if tables[i] = r.Hosts.table; i > 0 && strings.HasPrefix(r.Name, routes[i-1].Name+"/") {
			var all []*Resource
			for _, r := range routes {
				all = slices.AppendSeq(all, r.Hosts.All)
			}
			return NewSet(all)
		}
	}
	return newSet(frozen.Concat(CompareNames, tables...))
}

// All calls yield for each resource, by name.
func (s *Set) All(yield func(*Resource) bool) {
	if s != nil {
		s.table.All(yield)
	}
}

// Table returns the resources by name.
func (s *Set) Table() frozen.Table[*Resource] {
	if s == nil {
		return frozen.Table[*Resource]{}
	}
	return s.table
}

// Len returns the number of resources.
func (s *Set) Len() int { return s.Table().Len() }

// Get returns the resource of that name, or nil.
func (s *Set) Get(name string) *Resource {
	r, _ := s.Table().First(func(r *Resource) int { return strings.Compare(r.Name, name) })
	return r
}

// Below returns the resources whose names begin with a folder: those below "80" are named "80/…".
func (s *Set) Below(folder string) iter.Seq[*Resource] {
	prefix := folder + "/"
	return s.Table().Where(func(r *Resource) int { return frozen.ComparePrefix(r.Name, prefix) })
}

// Equal reports whether both Sets hold the very same resources.
func (s *Set) Equal(o *Set) bool {
	if s == o || s.Len() != o.Len() {
		return s == o
	}
	same := true
	Differ(s, o, func(_, _ *Resource) { same = false })
	return same
}

// Differ calls visit for what differs, by name: with two resources of one name that are not the same, or one and nil
// where the other Set has none.
func Differ(from, to *Set, visit func(had, has *Resource)) {
	frozen.Diff(from.Table(), to.Table(), func(had, has *Resource, _, _ bool) { visit(had, has) })
}
