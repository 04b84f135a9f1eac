package envoy

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
)

// Set holds the resources of one type for one half of a cohort, sorted by name. Never changed once made. A Set that was made from another shares with it what they
// have in common, and is compared with it at the cost of what differs. The nil Set is empty.
type Set struct {
	table  frozen.Table[*Resource]
	divide func() (heads, hosts *Set)
}

// NewSet sorts and keeps resources. Of several with one name the first stays.
func NewSet(resources []*Resource) *Set {
	if !slices.IsSortedFunc(resources, byName) {
		slices.SortStableFunc(resources, byName)
	}
	resources = slices.CompactFunc(resources, func(a, b *Resource) bool { return a.Name == b.Name })
	return newSet(frozen.TableOf(byName, resources))
}

func newSet(t frozen.Table[*Resource]) *Set {
	s := &Set{table: t}
	s.divide = sync.OnceValues(s.parts)
	return s
}

func byName(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }

// With gives a Set that has some resources less, where it has them, and others instead or as well. The same Set where that is no difference.
func (s *Set) With(gone, made []*Resource) *Set {
	if len(gone)+len(made) == 0 {
		return s
	}
	if s == nil {
		return NewSet(slices.Clone(made))
	}
	e, t := &frozen.Edit{}, s.table
	for _, r := range gone {
		if is, ok := t.Get(r); ok && is == r {
			t.Delete(e, r)
		}
	}
	for _, r := range made {
		t.Put(e, r)
	}
	e.Done()
	return newSet(t)
}

// Divided gives the Set as clients are sent it that take virtual hosts by themselves, and those virtual hosts. Made once.
func (s *Set) Divided() (heads, hosts *Set) {
	if s == nil {
		return nil, nil
	}
	return s.divide()
}

func (s *Set) parts() (heads, hosts *Set) {
	var first, routes []*Resource
	for r := range s.All {
		if r.Head != nil {
			first, routes = append(first, r.Head), append(routes, r)
		}
	}
	if routes == nil {
		return s, nil
	}
	return s.With(nil, first), together(routes)
}

// together gives the virtual hosts of route configurations. Those of one stand together unless the name of another is a folder in its own.
func together(routes []*Resource) *Set {
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
	return newSet(frozen.Concat(byName, tables...))
}

// All calls yield for each resource, by name.
func (s *Set) All(yield func(*Resource) bool) {
	if s != nil {
		s.table.All(yield)
	}
}

// Table gives the resources by name.
func (s *Set) Table() frozen.Table[*Resource] {
	if s == nil {
		return frozen.Table[*Resource]{}
	}
	return s.table
}

// Len is how many resources there are.
func (s *Set) Len() int { return s.Table().Len() }

// Get gives the resource of that name, or nil.
func (s *Set) Get(name string) *Resource {
	r, _ := s.Table().First(func(r *Resource) int { return strings.Compare(r.Name, name) })
	return r
}

// Below gives the resources whose names are under a folder: those of "80" are named "80/…".
func (s *Set) Below(folder string) iter.Seq[*Resource] {
	prefix := folder + "/"
	return s.Table().Where(func(r *Resource) int { return frozen.ComparePrefix(r.Name, prefix) })
}

// Equal tells whether both sets hold the very same resources.
func (s *Set) Equal(o *Set) bool {
	if s == o || s.Len() != o.Len() {
		return s == o
	}
	same := true
	Differ(s, o, func(_, _ *Resource) { same = false })
	return same
}

// Differ calls visit for what differs, by name: with two resources of one name that are not the same, or one and nil where the other Set has none.
func Differ(from, to *Set, visit func(had, has *Resource)) {
	frozen.Diff(from.Table(), to.Table(), func(had, has *Resource, _, _ bool) { visit(had, has) })
}
