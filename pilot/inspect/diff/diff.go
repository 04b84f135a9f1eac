package diff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

// Comparer compares what proxies are sent.
type Comparer struct {
	// StateOfTheWorld has the proxies, by pod.namespace, whose Envoy has a state-of-the-world stream. Applications that
	// use xDS themselves always have one.
	StateOfTheWorld map[string]bool

	translator *translate.Translator
	interner   envoy.NameInterner
	self       *envoy.Names              // names.SelfCluster alone
	refs       map[*envoy.Set]References // names that the resources of a Set subscribe to
	read       map[*envoy.Resource]References
	names      map[namesKey]*envoy.Names
	lists      map[[2]*envoy.Set][]string // names of the resources that differ between two Sets
	changes    map[changeKey]*Change
}

type namesKey struct {
	typeURL string
	from    [4]*envoy.Set
}

type changeKey struct {
	typeURL  string
	had, has *envoy.Resource
}

// New returns an empty Comparer. The Translator makes the resources. It should have a memo, because otherwise it makes
// shared resources again for each proxy.
func New(t *translate.Translator) *Comparer {
	c := &Comparer{
		translator: t, refs: map[*envoy.Set]References{}, read: map[*envoy.Resource]References{}, names: map[namesKey]*envoy.Names{},
		lists: map[[2]*envoy.Set][]string{}, changes: map[changeKey]*Change{},
	}
	c.self = c.interner.Intern([]string{names.SelfCluster})
	return c
}

// View is what all proxies are sent at one Snapshot.
type View struct {
	of map[string]*sight // by proxy, pod.namespace
}

// Get returns what a proxy is sent of a type.
func (v *View) Get(proxy, typeURL string) envoy.Union {
	i := slices.Index(types[:], typeURL)
	if v.of[proxy] == nil || i < 0 {
		return envoy.Union{}
	}
	return v.of[proxy].of[i]
}

// sight is what the proxies of one cohort are sent.
type sight struct {
	key   cohort.Key
	whole bool // whether the stream is a state-of-the-world one
	of    [len(types)]envoy.Union
}

// types are the types that proxies are sent, in the order of the report. Types that other resources name come after
// these.
var types = [...]string{
	envoy.ClusterType, envoy.ListenerType, envoy.EndpointType, envoy.RouteType, envoy.ExtensionType, envoy.SecretType,
	envoy.NameTableType, envoy.ProxyConfigType,
}

// Look returns what proxies are sent at a Snapshot. Snapshots must be passed in their order.
func (c *Comparer) Look(s *snapshot.Snapshot, proxies map[string]*node.Proxy) (*View, error) {
	c.translator.Prepare(s)
	v := &View{of: make(map[string]*sight, len(proxies))}
	type client struct {
		cohort.Key
		names bool // whether the agent answers DNS: only then does it subscribe to name tables
		whole bool // whether the stream is a state-of-the-world one
	}
	known := map[client]*sight{}
	var failed []error
	for name, p := range proxies {
		key := c.translator.ResolveCohort(s, p)
		whole := key.Client.Value().Proxyless || c.StateOfTheWorld[name]
		k := client{key, p.DNSCapture, whole}
		if known[k] == nil {
			seen, err := c.look(s, k.Key, p)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
			}
			seen.whole = whole
			known[k] = seen
		}
		v.of[name] = known[k]
	}
	return v, errors.Join(failed...)
}

func (c *Comparer) look(s *snapshot.Snapshot, k cohort.Key, p *node.Proxy) (*sight, error) {
	out := &sight{key: k}
	if k.Client.Value().Proxyless {
		return c.lookProxyless(s, k, p)
	}
	var failed []error
	for i, typeURL := range types {
		if typeURL == envoy.NameTableType && !p.DNSCapture {
			continue
		}
		var names *envoy.Names
		if envoy.TypeOf(typeURL).Named {
			if names = c.namesOf(typeURL, out); typeURL == envoy.EndpointType && p.SelfDiscovery {
				names = c.interner.Edited(names, nil, c.self)
			}
			if names.Len() == 0 {
				continue
			}
		}
		u, err := c.translator.Get(s, k, typeURL, names)
		if err != nil {
			failed = append(failed, err)
		}
		out.of[i] = u
	}
	return out, errors.Join(failed...)
}

// namesOf returns the names of a type that clusters and listeners subscribe to.
func (c *Comparer) namesOf(typeURL string, s *sight) *envoy.Names {
	clusters, listeners := s.of[0], s.of[1]
	key := namesKey{typeURL, [4]*envoy.Set{clusters.Shared, clusters.Own, listeners.Shared, listeners.Own}}
	if n := c.names[key]; n != nil && clusters.Omit == nil && listeners.Omit == nil {
		return n
	}
	var list []string
	if clusters.Omit != nil || listeners.Omit != nil {
		for _, u := range []struct {
			envoy.Union
			typeURL string
		}{{clusters, types[0]}, {listeners, types[1]}} {
			for r := range u.All {
				list = append(list, c.referencesOf(u.typeURL, r)[typeURL]...)
			}
		}
		return c.interner.Intern(list)
	}
	for i, set := range key.from {
		list = append(list, c.referencesOfSet(types[i/2], set)[typeURL]...)
	}
	n := c.interner.Intern(list)
	c.names[key] = n
	return n
}

func (c *Comparer) referencesOfSet(typeURL string, set *envoy.Set) References {
	if set == nil {
		return nil
	}
	if r, ok := c.refs[set]; ok {
		return r
	}
	all := References{}
	for r := range set.All {
		for t, list := range c.referencesOf(typeURL, r) {
			all[t] = append(all[t], list...)
		}
	}
	c.refs[set] = all
	return all
}

func (c *Comparer) referencesOf(typeURL string, r *envoy.Resource) References {
	if refs, ok := c.read[r]; ok {
		return refs
	}
	refs := References{}
	if err := refs.Add(typeURL, r); err != nil {
		refs = nil // the Translator's own output decodes
	}
	c.read[r] = refs
	return refs
}

// Difference is the difference between two Views.
type Difference struct {
	Proxies int       // number of proxies that are in both Views
	Changes []*Change // of all proxies, ordered by type and name
	Groups  []*Group  // proxies with the same difference, the largest group first
	Come    []string  // new proxies, which are sent everything
	Gone    []string  // proxies that are in the first View only
}

// Change is one resource that differs.
type Change struct {
	Type     string          // short name of its type, such as cds
	Name     string          // name of the resource
	Had, Has *envoy.Resource // nil for an added, and for a removed resource
	Proxies  int             // number of proxies that have it
	Causes   []Cause         // set by Attribute

	typeURL string
}

// Group is a group of proxies with the same difference.
type Group struct {
	Proxies []string
	Changes []*Change
	Bytes   int // size in bytes of the resources and names that each proxy is sent, without the envelope
}

// Affected returns the number of proxies with a difference.
func (d *Difference) Affected() int {
	n := 0
	for _, g := range d.Groups {
		n += len(g.Proxies)
	}
	return n
}

// Bytes returns the number of bytes that all proxies together are sent.
func (d *Difference) Bytes() int {
	n := 0
	for _, g := range d.Groups {
		n += g.Bytes * len(g.Proxies)
	}
	return n
}

// Empty reports whether nothing differs.
func (d *Difference) Empty() bool { return len(d.Groups)+len(d.Come)+len(d.Gone) == 0 }

// Compare returns the difference between two Views.
func (c *Comparer) Compare(before, after *View) *Difference {
	d := &Difference{}
	groups := map[[2]*sight]*Group{}
	for name, now := range after.of {
		was := before.of[name]
		if was == nil {
			d.Come = append(d.Come, name)
			continue
		}
		d.Proxies++
		pair := [2]*sight{was, now}
		g := groups[pair]
		if g == nil {
			g = c.group(was, now)
			groups[pair] = g
		}
		if len(g.Changes) > 0 {
			g.Proxies = append(g.Proxies, name)
		}
	}
	for name := range before.of {
		if after.of[name] == nil {
			d.Gone = append(d.Gone, name)
		}
	}
	slices.Sort(d.Come)
	slices.Sort(d.Gone)
	counts, same := map[*Change]int{}, map[string]*Group{}
	for _, g := range groups {
		if len(g.Changes) == 0 {
			continue
		}
		for _, x := range g.Changes {
			counts[x] += len(g.Proxies)
		}
		key := fmt.Sprint(g.Bytes, " ", g.Changes) // Changes are pointers
		if first := same[key]; first != nil {
			first.Proxies = append(first.Proxies, g.Proxies...)
			continue
		}
		same[key] = g
		d.Groups = append(d.Groups, g)
	}
	for _, g := range d.Groups {
		slices.Sort(g.Proxies)
	}
	slices.SortFunc(d.Groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(len(b.Proxies), len(a.Proxies)), cmp.Compare(a.Proxies[0], b.Proxies[0]))
	})
	for x, n := range counts {
		x.Proxies = n
		d.Changes = append(d.Changes, x)
	}
	slices.SortFunc(d.Changes, compareChanges)
	return d
}

func compareChanges(a, b *Change) int {
	return cmp.Or(
		cmp.Compare(slices.Index(types[:], a.typeURL), slices.Index(types[:], b.typeURL)), strings.Compare(a.Name, b.Name),
		cmp.Compare(b.Proxies, a.Proxies),
		strings.Compare(version(a.Had), version(b.Had)), strings.Compare(version(a.Has), version(b.Has)),
	)
}

func version(r *envoy.Resource) string {
	if r == nil {
		return ""
	}
	return r.Version
}

// group compares what two cohorts are sent. The caller adds the proxies.
func (c *Comparer) group(was, now *sight) *Group {
	g := &Group{}
	if was == now {
		return g
	}
	divided := now.key.Client.Value().Capabilities.Has(node.VHDS) && !now.whole
	for i, typeURL := range types {
		before, after := was.of[i], now.of[i]
		if before == after {
			continue
		}
		names := slices.Concat(c.differ(before.Shared, after.Shared), c.differ(before.Own, after.Own))
		if len(names) > 0 { // a resource may have moved from one half to the other
			names = slices.DeleteFunc(names, func(n string) bool { return before.Get(n) == after.Get(n) })
		}
		if before.Omit != after.Omit {
			for _, omit := range []*envoy.Names{before.Omit, after.Omit} {
				if omit != nil {
					names = append(names, omit.All()...)
				}
			}
		}
		slices.Sort(names)
		changed := len(g.Changes)
		for _, name := range slices.Compact(names) {
			had, has := before.Get(name), after.Get(name)
			if had == has || had != nil && has != nil && had.Version == has.Version {
				continue
			}
			g.Changes = append(g.Changes, c.change(typeURL, name, had, has))
			if !now.whole || has != nil && !envoy.TypeOf(typeURL).Complete {
				g.Bytes += cost(name, had, has, divided)
			}
		}
		if now.whole && envoy.TypeOf(typeURL).Complete && len(g.Changes) > changed { // all of the type are sent again
			for r := range after.All {
				g.Bytes += r.Size()
			}
		}
	}
	return g
}

func (c *Comparer) change(typeURL, name string, had, has *envoy.Resource) *Change {
	k := changeKey{typeURL, had, has}
	x := c.changes[k]
	if x == nil {
		x = &Change{Type: envoy.ShortType(typeURL), Name: name, Had: had, Has: has, typeURL: typeURL}
		c.changes[k] = x
	}
	return x
}

// differ returns the names of the resources that differ between two Sets.
func (c *Comparer) differ(from, to *envoy.Set) []string {
	if from == to {
		return nil
	}
	k := [2]*envoy.Set{from, to}
	list, ok := c.lists[k]
	if !ok {
		envoy.Differ(from, to, func(had, has *envoy.Resource) { list = append(list, cmp.Or(has, had).Name) })
		c.lists[k] = list
	}
	return list
}

// cost returns the size of a change in bytes: of the new resource, or of the name of a removed one. Clients
// that subscribe to virtual hosts by VHDS get only the hosts that differ.
func cost(name string, had, has *envoy.Resource, divided bool) int {
	switch {
	case has == nil:
		return len(name)
	case !divided || has.Head == nil:
		return has.Size()
	case had == nil || had.Head == nil:
		return has.Head.Size() + sizeOf(nil, has.Hosts)
	}
	n := sizeOf(had.Hosts, has.Hosts)
	if had.Head.Version != has.Head.Version {
		n += has.Head.Size()
	}
	return n
}

func sizeOf(from, to *envoy.Set) int {
	n := 0
	envoy.Differ(from, to, func(had, has *envoy.Resource) {
		switch {
		case has == nil:
			n += len(had.Name)
		case had == nil || had.Version != has.Version:
			n += has.Size()
		}
	})
	return n
}
