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

// initialVersions are the resources, without bodies, that a client has from an earlier stream. Clients of one cohort
// have most of them in common.
type initialVersions struct {
	shared *sharedVersions // nil: nothing is shared
	own    []*envoy.Resource
}

func (v initialVersions) empty() bool { return v.shared == nil && len(v.own) == 0 }

// union returns all of them. No name is in both halves.
func (v initialVersions) union() envoy.Union {
	if v.shared == nil {
		return envoy.Union{Outbound: setOf(v.own)}
	}
	return envoy.Union{Outbound: v.shared.set, Inbound: setOf(v.own)}
}

// hasGenerations reports whether a version carries a generation.
func (v initialVersions) hasGenerations() bool {
	return v.shared != nil && v.shared.hasGenerations || slices.ContainsFunc(v.own, func(r *envoy.Resource) bool { return strings.Contains(r.Version, generationMark) })
}

// sharedVersions are initial versions that several clients have in common.
type sharedVersions struct {
	set            *envoy.Set
	list           []*envoy.Resource
	names          []string // theirs
	index          index
	hasGenerations bool // see initialVersions
	cost           int  // about what it takes, in bytes
	used           bool // since forget; guarded by nameInterner.mu

	compared *differences // with what the clients should have

	mu    sync.Mutex
	views map[view]weak.Pointer[envoy.Set]
}

// view identifies the part of shared versions that counts for streams that subscribe by name.
type view struct {
	names    weak.Pointer[envoy.Names]
	clusters weak.Pointer[envoy.Set]
}

// Bounds of shared versions.
const (
	maxSharedBytes = 8 << 20 // bytes of all that are kept
	maxOwnVersions = 64      // of one client, beside the shared ones
	maxViews       = 256     // of one
)

// initialVersions returns the versions in a request. They are compared with those of an earlier request: what both have
// in common is shared from then on, unless that is too little.
func (l *nameInterner) initialVersions(typeURL string, list []entry) (initialVersions, error) {
	if len(list) == 0 {
		return initialVersions{}, nil
	}
	least := l.hash(list) ^ maphash.String(l.seed, typeURL)
	l.mu.Lock()
	c := l.shared[least]
	if c != nil {
		c.used = true
	}
	l.mu.Unlock()
	if c != nil {
		own, lost, ok := c.match(list)
		if !ok {
			return l.initialVersions(typeURL, lastOfEach(list))
		}
		if len(own) <= min(len(list)/8+1, maxOwnVersions) && lost <= len(c.list)/8+1 {
			if lost > 0 {
				c = l.share(least, c.without(list))
			}
			slices.Reverse(own) // of two with one name the last counts
			made, err := resources(own)
			return initialVersions{c, made}, err
		}
	}
	made, err := resources(list)
	if err != nil {
		return initialVersions{}, err
	}
	if !slices.IsSortedFunc(made, before) {
		slices.SortFunc(made, before)
	}
	for i := 1; i < len(made); i++ {
		if made[i].Name == made[i-1].Name {
			return l.initialVersions(typeURL, lastOfEach(list))
		}
	}
	if len(list) < l.few {
		return initialVersions{own: made}, nil
	}
	return initialVersions{shared: l.share(least, made)}, nil
}

func before(a, b *envoy.Resource) int { return strings.Compare(a.Name, b.Name) }

// match returns the entries that are not in c, and how many of c are not among the entries. It sets the position of
// each entry in c. It returns false if a name comes twice.
func (c *sharedVersions) match(list []entry) (own []entry, lost int, ok bool) {
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
		if e.position = p; p >= 0 {
			same++
		} else {
			own = append(own, *e)
		}
	}
	return own, len(c.list) - same, true
}

// without returns what is left of c after it was matched with entries.
func (c *sharedVersions) without(list []entry) []*envoy.Resource {
	left := make([]*envoy.Resource, 0, len(list))
	for i := range list {
		if p := list[i].position; p >= 0 {
			left = append(left, c.list[p])
		}
	}
	slices.SortFunc(left, before)
	return left
}

// share makes shared versions and keeps them.
func (l *nameInterner) share(least uint64, list []*envoy.Resource) *sharedVersions {
	c := &sharedVersions{set: envoy.NewSet(slices.Clone(list)), list: list, names: make([]string, len(list)), compared: &differences{}, used: true}
	for i, r := range list {
		c.names[i] = r.Name
		c.hasGenerations = c.hasGenerations || strings.Contains(r.Version, generationMark)
		c.cost += 512 + len(r.Name) + len(r.Version) // with one view of it
	}
	c.index = l.index(c.names)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared == nil {
		l.shared = map[uint64]*sharedVersions{}
	}
	l.evict(least)
	if c.cost > maxSharedBytes {
		return c
	}
	if l.cost+c.cost > maxSharedBytes {
		for k := range l.shared {
			l.evict(k)
		}
	}
	l.shared[least] = c
	l.cost += c.cost
	return c
}

// evict drops shared versions, if they are there. mu is held.
func (l *nameInterner) evict(least uint64) {
	if c := l.shared[least]; c != nil {
		delete(l.shared, least)
		l.cost -= c.cost
		c.compared.forget()
	}
}

// lastOfEach returns the last entry of each name.
func lastOfEach(list []entry) []entry {
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

// resources returns the resources that entries name.
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

// takeInitial sets what a resuming client has, as far as it counts.
func (s *session) takeInitial(w *watch, v initialVersions) {
	w.initial = true
	switch {
	case !s.divided:
	case w.kind.URL == envoy.RouteType:
		v = s.initialHeads(v)
	case w.kind.URL == envoy.VirtualHostType:
		v = s.initialHosts(v)
	}
	if w.whole() {
		w.held, w.shared = v.union(), v.shared
		return
	}
	var clusters envoy.Union
	if c := s.find(envoy.ClusterType); c != nil && w.kind.URL == envoy.EndpointType {
		clusters = c.held
	}
	if w.held.Outbound = setOf(w.relevant(clusters, v.own)); v.shared != nil && w.names != nil {
		w.held.Inbound = w.held.Outbound
		if onlyOutbound(clusters, w.names.Has) {
			w.held.Outbound, w.shared = v.shared.view(w, clusters.Outbound), v.shared
		} else {
			w.held.Outbound = setOf(w.relevant(clusters, v.shared.list))
		}
	}
	// those whose clusters have changed since do not count
	if w.kind.URL == envoy.EndpointType && len(s.changedClusters) > 0 {
		w.shared = nil
		for _, half := range []**envoy.Set{&w.held.Outbound, &w.held.Inbound} {
			var gone []*envoy.Resource
			for name := range s.changedClusters {
				if r := (*half).Get(name); r != nil {
					gone = append(gone, r)
				}
			}
			*half = (*half).With(gone, nil)
		}
	}
}

// onlyOutbound reports whether some names can be looked up in the outbound half alone.
func onlyOutbound(u envoy.Union, some func(name string) bool) bool {
	for r := range u.Inbound.All {
		if some(r.Name) {
			return false
		}
	}
	return u.Omit == nil
}

// diff returns the difference between what a client has of a type and what it should have. It is computed once for all
// clients that resumed with the same versions.
func (s *session) diff(w *watch, target envoy.Union, keep bool) difference {
	switch c := w.shared; {
	case !w.initial:
		return s.differences.between(w.held, target, keep)
	case c != nil:
		w.shared = nil
		return c.compared.between(w.held, target, keep)
	}
	return s.differences.between(w.held, target, false)
}

// view returns what counts of c for streams that subscribe to the same names and have the same clusters.
func (c *sharedVersions) view(w *watch, clusters *envoy.Set) *envoy.Set {
	from := view{weak.Make(w.names), weak.Make(clusters)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if set := c.views[from].Value(); set != nil {
		return set
	}
	set := setOf(w.relevant(envoy.Union{Outbound: clusters}, c.list))
	if c.views == nil || len(c.views) >= maxViews {
		c.views = map[view]weak.Pointer[envoy.Set]{}
	}
	c.views[from] = weak.Make(set)
	return set
}

// relevant returns the resources that the client subscribes to by name, by the versions without what this server added.
// An assignment that was sent with another version of its cluster does not count.
func (w *watch) relevant(clusters envoy.Union, list []*envoy.Resource) []*envoy.Resource {
	var kept []*envoy.Resource
	for _, r := range list {
		if !w.names.Has(r.Name) {
			continue
		}
		if w.kind.URL == envoy.EndpointType {
			own, ok := strings.CutSuffix(r.Version, clusterSuffix(clusters, r.Name))
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
