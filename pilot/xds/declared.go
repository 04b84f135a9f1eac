package xds

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
	"weak"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// versions are what a client brings of a type from an earlier stream: resources without bodies. Clients that had the same have most of them in common.
type versions struct {
	core *core // nil: nothing is shared
	own  []*envoy.Resource
}

func (v versions) empty() bool { return v.core == nil && len(v.own) == 0 }

// union gives what the client brings. No name is in both halves: a core has only what all of its clients brought alike.
func (v versions) union() envoy.Union {
	if v.core == nil {
		return envoy.Union{Outbound: setOf(v.own)}
	}
	return envoy.Union{Outbound: v.core.set, Inbound: setOf(v.own)}
}

// repeated tells that a version says that something was sent again.
func (v versions) repeated() bool {
	return v.core != nil && v.core.repeated || slices.ContainsFunc(v.own, func(r *envoy.Resource) bool { return strings.Contains(r.Version, repeated) })
}

// core is what several clients brought alike.
type core struct {
	set      *envoy.Set
	list     []*envoy.Resource
	names    []string // theirs
	index    index
	repeated bool // see versions
	cost     int  // about what it takes, in bytes
	used     bool // since forget; lists.mu's

	compared *differences // with what its clients should have

	mu    sync.Mutex
	views map[view]weak.Pointer[envoy.Set]
}

// view is what makes of a core what streams that ask by name count of it.
type view struct {
	names    weak.Pointer[envoy.Names]
	clusters weak.Pointer[envoy.Set]
}

// Bounds of cores.
const (
	mostBrought = 8 << 20 // bytes of all that are kept
	mostOwn     = 64      // what a client has otherwise than its core
	mostViews   = 256     // of one
)

// declared gives what a request brings. It is compared with what an earlier one brought: what both have is their core from then on, unless too little is left of it.
func (l *lists) declared(typeURL string, list []entry) (versions, error) {
	if len(list) == 0 {
		return versions{}, nil
	}
	least := l.hash(list) ^ maphash.String(l.seed, typeURL)
	l.mu.Lock()
	c := l.brought[least]
	if c != nil {
		c.used = true
	}
	l.mu.Unlock()
	if c != nil {
		own, lost, ok := c.match(list)
		if !ok {
			return l.declared(typeURL, unique(list))
		}
		if len(own) <= min(len(list)/8+1, mostOwn) && lost <= len(c.list)/8+1 {
			if lost > 0 {
				c = l.bring(least, c.without(list))
			}
			slices.Reverse(own) // of two with one name the last counts
			made, err := resources(own)
			return versions{c, made}, err
		}
	}
	made, err := resources(list)
	if err != nil {
		return versions{}, err
	}
	if !slices.IsSortedFunc(made, before) {
		slices.SortFunc(made, before)
	}
	for i := 1; i < len(made); i++ {
		if made[i].Name == made[i-1].Name {
			return l.declared(typeURL, unique(list))
		}
	}
	if len(list) < l.few {
		return versions{own: made}, nil
	}
	return versions{core: l.bring(least, made)}, nil
}

func before(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) }

// match gives the entries that are not in the core, after which places say of the others where they are, and how much of the core is not among the entries. false: a name is
// there twice.
func (c *core) match(list []entry) (own []entry, lost int, ok bool) {
	found := make([]bool, len(c.list))
	same := 0
	for i := range list {
		e := &list[i]
		p := c.index.find(c.names, e)
		if p >= 0 {
			if found[p] {
				return nil, 0, false
			}
			found[p] = true
			if c.list[p].Version != string(e.version) {
				p = -1
			}
		}
		if e.place = p; p >= 0 {
			same++
		} else {
			own = append(own, *e)
		}
	}
	return own, len(c.list) - same, true
}

// without gives what is left of a core that was matched with entries.
func (c *core) without(list []entry) []*envoy.Resource {
	left := make([]*envoy.Resource, 0, len(list))
	for i := range list {
		if p := list[i].place; p >= 0 {
			left = append(left, c.list[p])
		}
	}
	slices.SortFunc(left, before)
	return left
}

// bring keeps a core.
func (l *lists) bring(least uint64, list []*envoy.Resource) *core {
	c := &core{set: envoy.NewSet(slices.Clone(list)), list: list, names: make([]string, len(list)), compared: &differences{}, used: true}
	for i, r := range list {
		c.names[i] = r.Name
		c.repeated = c.repeated || strings.Contains(r.Version, repeated)
		c.cost += 512 + len(r.Name) + len(r.Version) // with one view of it
	}
	c.index = l.index(c.names)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.brought == nil {
		l.brought = map[uint64]*core{}
	}
	l.leave(least)
	if c.cost > mostBrought {
		return c
	}
	if l.cost+c.cost > mostBrought {
		for k := range l.brought {
			l.leave(k)
		}
	}
	l.brought[least] = c
	l.cost += c.cost
	return c
}

// leave drops a core, if it is there. mu is held.
func (l *lists) leave(least uint64) {
	if c := l.brought[least]; c != nil {
		delete(l.brought, least)
		l.cost -= c.cost
		c.compared.forget()
	}
}

// unique leaves of entries with one name the last.
func unique(list []entry) []entry {
	seen := map[string]struct{}{}
	var last []entry
	for _, e := range slices.Backward(list) {
		if _, ok := seen[string(e.name)]; !ok {
			seen[string(e.name)] = struct{}{}
			last = append(last, e)
		}
	}
	return last
}

// resources makes what entries say.
func resources(list []entry) ([]*envoy.Resource, error) {
	if len(list) == 0 {
		return nil, nil
	}
	size := 0
	for i := range list {
		size += len(list[i].name) + len(list[i].version)
	}
	var b strings.Builder
	b.Grow(size)
	for i := range list {
		if !utf8.Valid(list[i].name) || !utf8.Valid(list[i].version) {
			return nil, errMalformed
		}
		b.Write(list[i].name)
		b.Write(list[i].version)
	}
	all, text := make([]envoy.Resource, len(list)), b.String()
	made := make([]*envoy.Resource, len(list))
	for i := range list {
		n, v := len(list[i].name), len(list[i].version)
		all[i].Name, all[i].Version = text[:n], text[n:n+v]
		made[i], text = &all[i], text[n+v:]
	}
	return made, nil
}

// bring notes what a resuming client says that it has, as far as it counts.
func (s *session) bring(w *watch, v versions) {
	w.declared = true
	switch {
	case !s.divided:
	case w.typeURL == envoy.RouteType:
		v = s.bringHeads(v)
	case w.typeURL == envoy.VirtualHostType:
		v = s.bringHosts(v)
	}
	if w.whole() {
		w.held, w.core = v.union(), v.core
		return
	}
	var clusters envoy.Union
	if c := s.find(envoy.ClusterType); c != nil && w.typeURL == envoy.EndpointType {
		clusters = c.held
	}
	if w.held.Outbound = setOf(w.counting(clusters, v.own)); v.core != nil && w.names != nil {
		w.held.Inbound = w.held.Outbound
		if outbound(clusters, w.names.Has) {
			w.held.Outbound, w.core = v.core.view(w, clusters.Outbound), v.core
		} else {
			w.held.Outbound = setOf(w.counting(clusters, v.core.list))
		}
	}
	if w.typeURL == envoy.EndpointType && len(s.changed) > 0 { // those whose clusters have changed since do not count
		w.core = nil
		for _, half := range []**envoy.Set{&w.held.Outbound, &w.held.Inbound} {
			var gone []*envoy.Resource
			for name := range s.changed {
				if r := (*half).Get(name); r != nil {
					gone = append(gone, r)
				}
			}
			*half = (*half).With(gone, nil)
		}
	}
}

// outbound tells that the outbound half says all that there is of some names.
func outbound(u envoy.Union, some func(name string) bool) bool {
	for r := range u.Inbound.All {
		if some(r.Name) {
			return false
		}
	}
	return u.Omit == nil
}

// lead compares what a client has of a type with what it should have. What it brought is compared once for all that brought the same.
func (s *session) lead(w *watch, target envoy.Union, keep bool) difference {
	switch c := w.core; {
	case !w.declared:
		return s.differences.between(w.held, target, keep)
	case c != nil:
		w.core = nil
		return c.compared.between(w.held, target, keep)
	}
	return s.differences.between(w.held, target, false)
}

// view gives what counts of a core for those who ask for the same names and have the same clusters.
func (c *core) view(w *watch, clusters *envoy.Set) *envoy.Set {
	from := view{weak.Make(w.names), weak.Make(clusters)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if set := c.views[from].Value(); set != nil {
		return set
	}
	set := setOf(w.counting(envoy.Union{Outbound: clusters}, c.list))
	if c.views == nil || len(c.views) >= mostViews {
		c.views = map[view]weak.Pointer[envoy.Set]{}
	}
	c.views[from] = weak.Make(set)
	return set
}

// counting gives, of what a client brings of a type that it asks for by name, that which it asks for, without what this server added to the versions. An assignment whose
// cluster is another one now does not count.
func (w *watch) counting(clusters envoy.Union, list []*envoy.Resource) []*envoy.Resource {
	var kept []*envoy.Resource
	for _, r := range list {
		if !w.names.Has(r.Name) {
			continue
		}
		if w.typeURL == envoy.EndpointType {
			own, ok := strings.CutSuffix(r.Version, warmedBy(clusters, r.Name))
			if !ok {
				continue
			}
			r = &envoy.Resource{Name: r.Name, Version: own}
		}
		kept = append(kept, r)
	}
	return kept
}

func setOf(list []*envoy.Resource) *envoy.Set {
	if len(list) == 0 {
		return nil
	}
	return envoy.NewSet(list)
}
