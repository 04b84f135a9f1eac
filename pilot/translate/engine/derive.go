package engine

import (
	"slices"
	"weak"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Derivation makes one Set of another one, resource by resource.
type Derivation struct {
	Change  func(*envoy.Resource) *envoy.Resource // nil where the resource is left out; its name stays
	Added   []*envoy.Resource                     // beside the others; where both have a name, the other stays
	Content bool                                  // the Set holds virtual hosts, and its Content is needed
}

// Derive returns the Set that is made of another one as it is at a revision. list is the list of names of the other
// Set, nil where it has all resources. A key must always have the same Derivation, but for what is Added. What did not
// change in the other Set since the last time is not derived again.
func Derive(c *Cache, k Key, revision uint64, list *envoy.Names, base *envoy.Set, d Derivation) *Version {
	k.names = weak.Make(list)
	return c.get(k, revision, func(last *Version) *Version {
		if last != nil && last.base == base && slices.Equal(last.added, d.Added) {
			return last
		}
		v := &Version{from: revision, to: revision, base: base, added: d.Added}
		if last == nil || !slices.Equal(last.added, d.Added) {
			v.Set = d.all(base)
			if last != nil && v.Set.Equal(last.Set) {
				v.Set = last.Set
			}
			if d.Content {
				for r := range v.Set.All {
					v.Content.Add(r)
				}
			}
			return v
		}
		d.update(v, last)
		return v
	})
}

// all derives the whole Set.
func (d Derivation) all(base *envoy.Set) *envoy.Set {
	var list []*envoy.Resource
	for r := range base.All {
		if r = d.Change(r); r != nil {
			list = append(list, r)
		}
	}
	return envoy.NewSet(append(list, d.Added...))
}

// update derives a version of another one with the same resources Added.
func (d Derivation) update(v, last *Version) {
	var removed, added []*envoy.Resource
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
		if is == nil {
			if i := slices.IndexFunc(d.Added, func(r *envoy.Resource) bool { return r.Name == name }); i >= 0 {
				is = d.Added[i]
			}
		}
		was := last.Set.Get(name)
		if was == is {
			return
		}
		if was != nil {
			v.Content.Remove(was)
			removed = append(removed, was)
		}
		if is != nil {
			v.Content.Add(is)
			added = append(added, is)
		}
	})
	if !d.Content {
		v.Content = envoy.Content{}
	}
	v.Set = last.Set.With(removed, added)
}
