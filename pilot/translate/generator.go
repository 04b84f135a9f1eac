package translate

import (
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// generator generates one Set, whole or in part. The Set is divided into partitions, such as hosts or bind addresses.
// Each resource belongs to one partition, and depends on nothing but what the Index holds for that partition. So a
// partition that a scope.Dirty does not affect is as it was.
type generator[P comparable] struct {
	all        func(v *view) []*envoy.Resource                    // generates the whole Set
	affected   func(c *scope.Dirty) []P                           // the partitions that dirty rows affect
	closure    func(v *view, u []P) []P                           // adds the partitions that depend on those; nil where none do
	partitions func(v *view, all []P) func(u P) []*envoy.Resource // prepares some partitions; the result generates each
	locate     func(u P) locator                                  // finds the resources of a partition in a Set
	byHostKey  bool                                               // a partition's resources are adjacent by host key, not by name
	content    bool                                               // the Set holds virtual hosts, and its Content is needed
}

// locator compares a resource with a partition, by host key where the generator is byHostKey, else by name. It returns
// 0 for the partition's own resources.
type locator func(r *envoy.Resource) int

// singlePartition returns a generator whose Set is one partition. It is generated whole when stale reports true.
func singlePartition(all func(v *view) []*envoy.Resource, stale func(c *scope.Dirty) bool) generator[struct{}] {
	return generator[struct{}]{all: all, affected: func(c *scope.Dirty) []struct{} {
		if stale(c) {
			return make([]struct{}, 1)
		}
		return nil
	}}
}

// update generates the version of a view. It starts from last, which is mostly the version before, and invalidates the
// partitions that are dirty between the two. A nil last means that there is none.
func (g generator[P]) update(v *view, last *version) *version {
	if last == nil {
		return g.generateAll(v)
	}
	c, ok := v.t.history.since(min(last.to, v.Revision), max(last.from, v.Revision))
	if ok && !c.All {
		affected := g.affected(c)
		if len(affected) == 0 {
			return last
		}
		if g.partitions != nil && len(affected) <= maxPartitions+last.set.Len() {
			if g.closure != nil {
				affected = g.closure(v, affected)
			}
			return g.regenerate(v, last, affected)
		}
	}
	next := g.generateAll(v)
	if next.set.Equal(last.set) {
		next.set = last.set
	}
	return next
}

// generateAll generates the version of a view without an earlier one.
func (g generator[P]) generateAll(v *view) *version {
	own := *v
	own.conflicts = &conflictLog{byPartition: map[any][]conflictNote{}}
	s := &version{span: span{v.Revision, v.Revision}, set: envoy.NewSet(g.all(&own)), conflicts: own.conflicts.byPartition}
	if s.byPartition = s.set.Table(); g.byHostKey {
		s.byPartition = frozen.TableOf(byHostKey, slices.SortedFunc(s.set.All, byHostKey))
	}
	if g.content {
		for h := range s.set.All {
			s.content.Add(h)
		}
	}
	return s
}

// regenerate makes a version from another one by generating some partitions again.
func (g generator[P]) regenerate(v *view, last *version, partitions []P) *version {
	own := *v
	own.conflicts = &conflictLog{byPartition: make(map[any][]conflictNote, len(last.conflicts))}
	for p, list := range last.conflicts {
		own.conflicts.byPartition[p] = list
	}
	for _, p := range partitions {
		delete(own.conflicts.byPartition, p)
		delete(own.conflicts.seen, p)
	}
	var removed, added []*envoy.Resource
	generate := g.partitions(&own, partitions)
	for _, p := range partitions {
		own.conflicts.partition = p
		was, is := slices.Collect(last.byPartition.Where(g.locate(p))), generate(p)
		removed, added = append(removed, difference(was, is)...), append(added, difference(is, was)...)
	}
	s := &version{span: span{v.Revision, v.Revision}, set: last.set, byPartition: last.byPartition, content: last.content, conflicts: own.conflicts.byPartition}
	if len(removed)+len(added) > 0 {
		s.set = last.set.With(removed, added)
		if s.byPartition = s.set.Table(); g.byHostKey {
			s.byPartition = replace(last.byPartition, removed, added)
		}
		if g.content {
			for _, h := range removed {
				s.content.Remove(h)
			}
			for _, h := range added {
				s.content.Add(h)
			}
		}
	}
	return s
}

// difference returns the resources of list that are not in others.
func difference(list, others []*envoy.Resource) []*envoy.Resource {
	if len(list) == 0 || slices.Equal(list, others) {
		return nil
	}
	among := make(map[*envoy.Resource]struct{}, len(others))
	for _, r := range others {
		among[r] = struct{}{}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r *envoy.Resource) bool { _, ok := among[r]; return ok })
}

// eachPartition adapts a function that generates one partition without preparation.
func eachPartition[P comparable](generate func(v *view, p P) []*envoy.Resource) func(v *view, all []P) func(p P) []*envoy.Resource {
	return func(v *view, _ []P) func(p P) []*envoy.Resource {
		return func(p P) []*envoy.Resource { return generate(v, p) }
	}
}

// replace returns a table without the removed resources and with the added ones.
func replace(list frozen.Table[*envoy.Resource], removed, added []*envoy.Resource) frozen.Table[*envoy.Resource] {
	e := &frozen.Edit{}
	for _, r := range removed {
		list.Delete(e, r)
	}
	for _, r := range added {
		list.Put(e, r)
	}
	e.Done()
	return list
}

func compareNames(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) }

// hostKeyOf returns the host key of a resource: the host in a cluster's name, else the whole name.
func hostKeyOf(name string) string {
	if strings.HasPrefix(name, string(names.Outbound)+"_.") {
		part := strings.SplitN(name, "_.", 4) // the host may contain the separator
		return part[len(part)-1]
	}
	return name[strings.LastIndexByte(name, '|')+1:]
}

func compareHostKeys(a, b string) int {
	if c := strings.Compare(hostKeyOf(a), hostKeyOf(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func byHostKey(a, b *envoy.Resource) int { return compareHostKeys(a.Name, b.Name) }
