package engine

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
)

// ByName generates the resources of a list of names at one Snapshot. Each name is a partition.
type ByName struct {
	// Affected returns the names of a list that dirty rows affect. It may repeat names.
	Affected func(d *scope.Dirty, list *envoy.Names) []string
	// Build returns the resource of a name, or nil if the Set has none.
	Build func(name string) *envoy.Resource
	// Elsewhere reports whether another Set may have a resource for a name for which this one has none. It is nil if no
	// other Set may.
	Elsewhere func(name string) bool
}

// failures are the names whose builders failed. They are retried with each Snapshot.
type failures struct {
	failed   map[string]error
	names    *envoy.Names // names in failed that have no resource of an earlier version
	reported atomic.Bool
}

// Failed returns the names that have no resource because their builders failed.
func (f *failures) Failed() *envoy.Names { return f.names }

// Err returns the failures, to its first caller only.
func (f *failures) Err() error {
	if len(f.failed) == 0 || f.reported.Swap(true) {
		return nil
	}
	return errors.Join(slices.Collect(maps.Values(f.failed))...)
}

// CachedByName returns what GetByName returns if it is cached, or nil.
func CachedByName(c *Cache, k Key, revision uint64, list *envoy.Names) *Version {
	k.names = weak.Make(list)
	return c.cached(k, revision)
}

// GetByName returns the Set of a list of names as it is at a revision. A name whose builder panics keeps its last good
// resource, or is missing if there is none. A list that was edited from another one is made from the Set of that list.
func GetByName(c *Cache, k Key, revision uint64, list *envoy.Names, g ByName) *Version {
	k.names = weak.Make(list)
	return c.get(k, revision, func(last *Version) *Version {
		if last == nil {
			last, look := g.fromOrigin(c, k, revision, list)
			return g.rebuild(last, revision, look)
		}
		look := list.Each()
		if d, ok := c.between(last, revision); ok {
			names := slices.AppendSeq(slices.Clip(g.Affected(d, list)), maps.Keys(last.failed))
			if len(names) == 0 {
				return last
			}
			look = slices.Values(names)
		}
		return g.rebuild(last, revision, look)
	})
}

// Elsewhere reports whether another Set may have a resource for a name for which this one has none.
func (v *Version) Elsewhere() bool { return v.elsewhere.Len() > 0 }

// fromOrigin returns the version from which a first version is made, and the names to build: the version of the list
// from which the names were edited, if it is cached, or else nil and all names.
func (g ByName) fromOrigin(c *Cache, k Key, revision uint64, list *envoy.Names) (*Version, iter.Seq[string]) {
	origin := list.Origin()
	if k.names = weak.Make(origin); origin == nil || !c.has(k) {
		return &Version{}, list.Each()
	}
	from := GetByName(c, k, revision, origin, g)
	var removed []*envoy.Resource
	var look []string
	frozen.Diff(origin.Table(), list.Table(), func(was, is string, had, has bool) {
		if has {
			look = append(look, is)
		} else if r := from.Set.Get(was); r != nil {
			removed = append(removed, r)
		}
	})
	for name := range from.failed {
		if list.Has(name) {
			look = append(look, name)
		}
	}
	last := &Version{Set: from.Set.With(removed, nil), elsewhere: from.elsewhere}
	if from.elsewhere.Len() > 0 {
		e := &frozen.Edit{}
		frozen.Diff(origin.Table(), list.Table(), func(was, _ string, _, has bool) {
			if !has {
				last.elsewhere.Delete(e, was)
			}
		})
		e.Done()
	}
	return last, slices.Values(look)
}

// rebuild makes a version from another one by building some names again. No others may have changed.
func (g ByName) rebuild(last *Version, revision uint64, look iter.Seq[string]) *Version {
	v := &Version{from: revision, to: revision, elsewhere: last.elsewhere}
	if g.Elsewhere != nil && v.elsewhere.Len() == 0 {
		v.elsewhere = frozen.NewTable(strings.Compare)
	}
	e := &frozen.Edit{}
	var removed, added []*envoy.Resource
	var missing []string
	for name := range look {
		had := last.Set.Get(name)
		var has *envoy.Resource
		elsewhere := false
		if err := safe.Do("translate "+name, func() {
			has = g.Build(name)
			elsewhere = has == nil && g.Elsewhere != nil && g.Elsewhere(name)
		}); err != nil {
			if v.failed == nil {
				v.failed = map[string]error{}
			}
			if v.failed[name] = err; had == nil {
				missing = append(missing, name)
			}
			continue
		}
		switch {
		case elsewhere:
			v.elsewhere.Put(e, name)
		case v.elsewhere.Len() > 0:
			v.elsewhere.Delete(e, name)
		}
		switch {
		case has == had || equalContent(had, has):
		case has == nil:
			removed = append(removed, had)
		default:
			added = append(added, has)
		}
	}
	e.Done()
	if missing != nil {
		v.names = new(envoy.NameInterner).Intern(missing)
	}
	v.Set = last.Set.With(removed, added)
	return v
}

// equalContent reports whether a resource that is not memoised was built again with the same content.
func equalContent(had, has *envoy.Resource) bool {
	if had == nil || has == nil || had.Version != has.Version || (had.Head == nil) != (has.Head == nil) {
		return false
	}
	if had.Head != nil {
		return had.Head.Version == has.Head.Version && had.Hosts.Equal(has.Hosts)
	}
	return had.Body != nil && has.Body != nil
}
