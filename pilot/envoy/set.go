package envoy

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Set holds the resources of one type for one half of a cohort, sorted by name. It is immutable. A Set that was made
// from another one shares memory with it, and comparing the two costs no more than their differences. The nil Set is
// empty.
type Set struct {
	table  frozen.Table[*Resource]
	divide func() (heads, hosts *Set)
}

// NewSet sorts resources and returns a Set of them. If several have the same name, the first one is used.
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

// With returns a Set without the resources in removed and with those in added. It ignores removed resources that the
// Set does not have, and returns the same Set if both lists are empty.
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

// Divided returns two Sets for clients that subscribe to virtual hosts by VHDS: the Heads and the virtual hosts. They
// are made once.
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

// concatHosts returns the virtual hosts of route configurations. The hosts of one configuration are adjacent unless the
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

// Below returns the resources whose names begin with a folder: resources below "80" are named "80/…".
func (s *Set) Below(folder string) iter.Seq[*Resource] {
	prefix := folder + "/"
	return s.Table().Where(func(r *Resource) int { return frozen.ComparePrefix(r.Name, prefix) })
}

// Equal reports whether both Sets hold the same pointers.
func (s *Set) Equal(o *Set) bool {
	if s == o || s.Len() != o.Len() {
		return s == o
	}
	same := true
	Differ(s, o, func(_, _ *Resource) { same = false })
	return same
}

// Differ calls visit for each difference, ordered by name: with two different resources of one name, or with nil for a
// Set that has no resource of the name.
func Differ(from, to *Set, visit func(had, has *Resource)) {
	frozen.Diff(from.Table(), to.Table(), func(had, has *Resource, _, _ bool) { visit(had, has) })
}
