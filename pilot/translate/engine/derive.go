package engine

import (
	"maps"
	"slices"
	"weak"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Derivation makes one Set of another one, resource by resource. Its methods are called only if something has to be
// derived.
type Derivation interface {
	// Change returns the resource that replaces another one. If it is Removed, an added resource may have its name.
	Change(*envoy.Resource) *envoy.Resource
	// Added returns more resources. If one of them has the name of another resource, the other one stays. Resources that
	// are Removed are not in the Set.
	Added() []*envoy.Resource
	// HasContent reports whether the Set holds virtual hosts, and its Content is needed.
	HasContent() bool
}

// derived is the part of a Version that is set by Derive and Extend.
type derived struct {
	base    *envoy.Set
	added   []*envoy.Resource
	removed map[string]*envoy.Resource // results of Change for resources that are not in the Set, by name
}

// Derive returns the Set that is made from another one as it is at a revision. list is the list of names of the other
// Set, nil if it has all resources. A key must always have the same Derivation, except for what is Added. Resources
// that are unchanged in the other Set since the last call are not derived again.
func Derive(c *Cache, k Key, revision uint64, list *envoy.Names, base *envoy.Set, d Derivation) *Version {
	k.names = weak.Make(list)
	return c.get(k, revision, func(last *Version) *Version {
		v := &Version{from: revision, to: revision, derived: derived{base: base, added: d.Added()}}
		switch {
		case last == nil:
			v.deriveAll(d)
		case !slices.Equal(last.added, v.added):
			if v.deriveAll(d); v.Set.Equal(last.Set) {
				v.Set = last.Set
			}
		case last.base == base:
			return last
		default:
			v.deriveFrom(last, d)
		}
		return v
	})
}

// Extend returns the Set with the resources of another one and some more, as it is at a revision. list is the list of
// names of the other Set, which has none of the added names. Only the added resources cost anything.
func Extend(c *Cache, k Key, revision uint64, list *envoy.Names, base *envoy.Set, added []*envoy.Resource) *envoy.Set {
	k.names = weak.Make(list)
	return c.get(k, revision, func(last *Version) *Version {
		if last != nil && last.base == base && slices.Equal(last.added, added) {
			return last
		}
		return &Version{Set: base.With(nil, added), from: revision, to: revision, derived: derived{base: base, added: added}}
	}).Set
}

// EachDerived calls visit for each Set that Derive made and that was requested since the last full Snapshot: with its
// key, its resources, the resources that were added or could not be added, and the removed ones.
func (c *Cache) EachDerived(visit func(k Key, set *envoy.Set, added []*envoy.Resource, removed map[string]*envoy.Resource)) {
	c.mu.Lock()
	entries, last := maps.Clone(c.entries), c.lastCompare
	c.mu.Unlock()
	for k, e := range entries {
		var v *Version
		e.mu.Lock()
		if n := len(e.versions); n > 0 && e.versions[n-1].to >= last {
			v = e.versions[n-1]
		}
		e.mu.Unlock()
		if v != nil && k.Patches.Value() != nil {
			visit(k, v.Set, v.added, v.removed)
		}
	}
}

// all derives the whole Set. It shares all unchanged resources with the other Set.
func (v *Version) deriveAll(d Derivation) {
	same := &Version{Set: v.base, derived: derived{removed: map[string]*envoy.Resource{}}}
	content := d.HasContent()
	if content {
		for r := range v.base.All {
			same.Content.Add(r)
		}
	}
	v.deriveFrom(same, d)
	var more []*envoy.Resource // with names that the other Set does not have
	for _, r := range v.added {
		if named := func(o *envoy.Resource) bool {
			return o.Name == r.Name
		}; r.Removed() || v.Set.Get(r.Name) != nil || slices.ContainsFunc(more, named) {
			continue
		}
		if more = append(more, r); content {
			v.Content.Add(r)
		}
	}
	v.Set = v.Set.With(nil, more)
}

// deriveFrom derives the version from another one with the same resources Added.
func (v *Version) deriveFrom(last *Version, d Derivation) {
	var removed, added []*envoy.Resource
	content := d.HasContent()
	v.removed = maps.Clone(last.removed)
	v.Content = last.Content
	envoy.Differ(last.base, v.base, func(had, has *envoy.Resource) {
		name := ""
		var is *envoy.Resource
		if had != nil {
			name = had.Name
		}
		if has != nil {
			name, is = has.Name, d.Change(has)
		}
		delete(v.removed, name)
		if is != nil && is.Removed() {
			v.removed[name], is = is, nil
		}
		if is == nil {
			if i := slices.IndexFunc(v.added, func(r *envoy.Resource) bool { return r.Name == name && !r.Removed() }); i >= 0 {
				is = v.added[i]
			}
		}
		was := last.Set.Get(name)
		if was == is {
			return
		}
		if was != nil {
			removed = append(removed, was)
		}
		if is != nil {
			added = append(added, is)
		}
		if !content {
			return // the Content of a RouteConfiguration is spliced for its size alone
		}
		if was != nil {
			v.Content.Remove(was)
		}
		if is != nil {
			v.Content.Add(is)
		}
	})
	v.Set = last.Set.With(removed, added)
}
