package engine

import (
	"iter"
	"maps"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// Generator generates one Set at one Snapshot, whole or in part. The Set is divided into partitions, such as hosts or
// bind addresses. Each resource belongs to one partition, and depends only on what the Index holds for that partition.
// So a partition that a scope.Dirty does not affect is unchanged.
type Generator[P comparable] struct {
	All        func() []*envoy.Resource                   // generates the whole Set
	Affected   func(d *scope.Dirty) []P                   // returns the partitions that dirty rows affect
	Closure    func(affected []P) []P                     // adds the partitions that depend on affected ones; nil if none do
	Partitions func(list []P) func(p P) []*envoy.Resource // prepares some partitions; the result generates each
	Locate     func(p P) Locator                          // locates the resources of a partition in a Set
	Order      func(a, b string) int                      // order of names in which those of a partition are adjacent; nil for the usual one
	Content    bool                                       // whether the Set holds virtual hosts, for which Content is needed
}

// Locator compares the name of a resource with those of a partition, in the generator's Order. It returns 0 for the
// partition's own resources.
type Locator func(name string) int

// Single returns a generator whose Set is one partition. It is generated whole if stale returns true.
func Single(all func() []*envoy.Resource, stale func(d *scope.Dirty) bool) Generator[struct{}] {
	return Generator[struct{}]{All: all, Affected: func(d *scope.Dirty) []struct{} {
		if stale(d) {
			return make([]struct{}, 1)
		}
		return nil
	}}
}

// IfAll is the stale function of Single for a Set that depends only on its cohort and the mesh configuration.
func IfAll(d *scope.Dirty) bool { return d.All }

// IfHosts is the stale function of Single for a Set that depends on hosts and the mesh configuration, and not on
// endpoints, facts, credentials or the reassignment of proxies.
func IfHosts(d *scope.Dirty) bool { return !d.NoHosts() }

// IfRoots is the stale function of Single for a Set that depends only on the roots that proxies trust and the mesh
// configuration.
func IfRoots(d *scope.Dirty) bool { return d.All || d.Roots }

// Get returns a Set as it is at a revision. newGenerator is called if the cache does not have it. Its generator records
// conflicts in the Log.
func Get[P comparable](c *Cache, k Key, revision uint64, newGenerator func(*Log) Generator[P]) *Version {
	return c.get(k, revision, func(last *Version) *Version {
		log := &Log{}
		v := newGenerator(log).update(c, last, revision, log)
		if v != last {
			v.from, v.to, v.conflicts = revision, revision, log.byPartition
		}
		return v
	})
}

// update generates the version of a revision. It starts from last, usually the previous version, and invalidates the
// partitions that are dirty between the two. last is nil if there is none.
func (g Generator[P]) update(c *Cache, last *Version, revision uint64, log *Log) *Version {
	if last == nil {
		return g.Generate()
	}
	if d, ok := c.between(last, revision); ok {
		affected := g.Affected(d)
		if len(affected) == 0 {
			return last
		}
		if g.Partitions != nil && len(affected) <= maxPartitions+last.Set.Len() {
			if g.Closure != nil {
				affected = g.Closure(affected)
			}
			return g.regenerate(last, affected, log)
		}
	}
	next := g.Generate()
	if next.Set.Equal(last.Set) {
		next.Set = last.Set
	}
	return next
}

// Generate generates the whole Set without caching it.
func (g Generator[P]) Generate() *Version {
	v := &Version{Set: envoy.NewSet(g.All())}
	if v.byPartition = v.Set.Table(); g.Order != nil {
		order := func(a, b *envoy.Resource) int { return g.Order(a.Name, b.Name) }
		v.byPartition = frozen.TableOf(order, slices.SortedFunc(v.Set.All, order))
	}
	if g.Content {
		for r := range v.Set.All {
			v.Content.Add(r)
		}
	}
	return v
}

// regenerate makes a version from another one by generating some partitions again.
func (g Generator[P]) regenerate(last *Version, partitions []P, log *Log) *Version {
	log.byPartition = maps.Clone(last.conflicts)
	for _, p := range partitions {
		delete(log.byPartition, any(p))
	}
	var removed, added []*envoy.Resource
	generate := g.Partitions(partitions)
	for _, p := range partitions {
		was, is := slices.Collect(last.Located(g.Locate(p))), generate(p)
		removed, added = append(removed, difference(was, is)...), append(added, difference(is, was)...)
	}
	v := &Version{Set: last.Set, byPartition: last.byPartition, Content: last.Content}
	if len(removed)+len(added) > 0 {
		v.Set = last.Set.With(removed, added)
		if v.byPartition = v.Set.Table(); g.Order != nil {
			v.byPartition = replace(last.byPartition, removed, added)
		}
		if g.Content {
			for _, r := range removed {
				v.Content.Remove(r)
			}
			for _, r := range added {
				v.Content.Add(r)
			}
		}
	}
	return v
}

// Located returns the resources of a partition.
func (v *Version) Located(at Locator) iter.Seq[*envoy.Resource] {
	return v.byPartition.Where(func(r *envoy.Resource) int { return at(r.Name) })
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

// Each adapts a function that generates one partition without preparation.
func Each[P comparable](generate func(p P) []*envoy.Resource) func(list []P) func(p P) []*envoy.Resource {
	return func([]P) func(p P) []*envoy.Resource { return generate }
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
