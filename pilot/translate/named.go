package translate

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Subscribed gives the resources of those names, assignments or route configurations, as a cohort sees them: those that depend on where the proxy runs are the
// inbound half, for they alone are not shared by the whole scope. What does not exist is there, and empty, so that Envoy goes on. Equal resources are equal Sets.
// A name whose translation fails keeps what it had in the last Snapshot; where there is none it is missing. Of other types it gives nothing.
func (t *Translator) Subscribed(s *snapshot.Snapshot, c cohort.Proxy, typeURL string, names *envoy.Names) (envoy.Union, error) {
	if names == nil {
		return envoy.Union{}, nil
	}
	v := t.view(s)
	k := subscription{typeURL: typeURL, scope: c.Scope, names: weakOf(names)}
	switch typeURL {
	case envoy.RouteType:
		got := t.board.get(v, k, names, func(name string) (*envoy.Resource, bool) { return v.routeOrNone(c.Scope, name), false })
		return envoy.Union{Outbound: got.set}, got.err()
	case envoy.EndpointType:
		got := t.board.get(v, k, names, func(name string) (*envoy.Resource, bool) {
			k := v.assignmentKey(c, name)
			if k.placed() {
				return nil, true
			}
			return v.assignment(k), false
		})
		u, err := envoy.Union{Outbound: got.set}, got.err()
		if got.placed {
			k.placed, k.node, k.place = true, c.Node, c.Place
			own := t.board.get(v, k, names, func(name string) (*envoy.Resource, bool) {
				k := v.assignmentKey(c, name)
				if !k.placed() {
					return nil, false
				}
				return v.assignment(k), true
			})
			u.Inbound, err = own.set, errors.Join(err, own.err())
		}
		return u, err
	}
	return envoy.Union{}, nil
}

// assignment makes one. Clients choose the names: of one that no service is behind nothing is kept.
func (v *view) assignment(k assignmentKey) *envoy.Resource {
	if k.service == nil {
		return buildAssignment(k)
	}
	return v.t.assignments.Get(k)
}

// routeOrNone is route, except that of a name that no listener of a sidecar has nothing is kept.
func (v *view) routeOrNone(c cohort.Scope, name string) *envoy.Resource {
	if c.Type == node.Router {
		return v.route(c, name)
	}
	b, ok := v.routing(c, name)
	switch {
	case !ok, b.sniffed != "" && b.claim(b.sniffed) == nil:
		return buildHeader(headerKey{name: name})
	case ofSocket(name) && b.egress.Listener.GetPort() == nil: // a socket that no listener is bound to
		s := hostRecipe(c, name).anew(v)
		k := routeKey{header: buildHeader(headerKey{name: name}), hosts: s.set, content: s.content}
		if c.Capabilities.Has(node.VHDS) && divisible(name) {
			k.head = buildHeader(headerKey{name, true})
		}
		return buildRoute(k)
	}
	return v.route(c, name)
}

// subscription is what streams share that ask for the same names.
type subscription struct {
	typeURL string
	scope   cohort.Scope
	placed  bool // only what depends on the two
	node    string
	place   cohort.Place
	names   weak.Pointer[envoy.Names]
}

func weakOf(n *envoy.Names) weak.Pointer[envoy.Names] { return weak.Make(n) }

// board holds what proxies subscribe to by name: for each subscription the Set of the newest Snapshot that somebody asked for, from which the next is made by
// looking at what changed alone. Those whose names nobody holds any more are forgotten. Safe for concurrent use.
type board struct {
	mu      sync.Mutex
	entries map[subscription]*entry
}

// entry is one subscription.
type entry struct {
	mu     sync.Mutex
	states []*state // oldest first
	byHost map[string][]int
}

// state is what a subscription was from one revision to another. The names that failed are looked at again each time.
type state struct {
	from, to uint64
	set      *envoy.Set
	list     []*envoy.Resource // as the names are; nil where there is nothing
	placed   bool              // some depend on where the proxy runs
	failed   map[string]error
	told     atomic.Bool
}

// err gives what failed to the first that asks.
func (s *state) err() error {
	if len(s.failed) == 0 || s.told.Swap(true) {
		return nil
	}
	var all []error
	for _, err := range s.failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// get gives the state of a subscription in a Snapshot. make gives the resource of one name, nil if it is not of this subscription, and whether it depends on
// where the proxy runs.
func (b *board) get(v *view, k subscription, names *envoy.Names, make func(name string) (*envoy.Resource, bool)) *state {
	b.mu.Lock()
	e := b.entries[k]
	if e == nil {
		e = &entry{}
		if b.entries == nil {
			b.entries = map[subscription]*entry{}
		}
		b.entries[k] = e
		runtime.AddCleanup(names, b.forget, k)
	}
	b.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range slices.Backward(e.states) {
		if s.from <= v.Revision && v.Revision <= s.to {
			return s
		}
	}
	var last *state
	if n := len(e.states); n > 0 {
		last = e.states[n-1]
		if last.to > v.Revision {
			return e.work(v, names, nil, nil, make) // of a stream that has fallen far behind
		}
	}
	var look []int
	if last != nil {
		var all bool
		look, all = e.due(v, k, names, last.to)
		for name := range last.failed {
			i, _ := slices.BinarySearch(names.All(), name)
			look = append(look, i)
		}
		if !all && len(look) == 0 {
			last.to = v.Revision
			return last
		} else if all {
			look = nil
		}
	} else if origin := names.Origin(); origin != nil {
		last, look = b.grow(v, k, origin, names, make)
	}
	next := e.work(v, names, last, look, make)
	if len(e.states) >= keptVersions {
		e.states = slices.Delete(e.states, 0, 1)
	}
	e.states = append(e.states, next)
	return next
}

// grow makes of the state of one list what it says of another list, and gives which of those names it does not know.
func (b *board) grow(v *view, k subscription, origin, names *envoy.Names, make func(name string) (*envoy.Resource, bool)) (*state, []int) {
	k.names = weakOf(origin)
	b.mu.Lock()
	known := b.entries[k] != nil
	b.mu.Unlock()
	if !known {
		return nil, nil
	}
	from := b.get(v, k, origin, make)
	s, look := &state{placed: from.placed, list: slices.Grow([]*envoy.Resource(nil), names.Len())}, []int{}
	had := origin.All()
	i := 0
	for at, name := range names.All() {
		for i < len(had) && had[i] < name {
			i++
		}
		var r *envoy.Resource
		known := i < len(had) && had[i] == name
		if known {
			r = from.list[i]
		}
		if s.list = append(s.list, r); !known || from.failed[name] != nil {
			look = append(look, at)
		}
	}
	return s, look
}

// due tells which names may have changed after a revision, by their place; or that all may have.
func (e *entry) due(v *view, k subscription, names *envoy.Names, from uint64) (look []int, all bool) {
	c, ok := v.t.history.since(from, v.Revision)
	switch {
	case !ok || c.All:
		return nil, true
	case k.typeURL == envoy.RouteType:
		return nil, !c.Empty()
	}
	if len(c.Hosts)+len(c.Endpoints) > 0 && e.byHost == nil {
		e.byHost = map[string][]int{}
		for i, name := range names.All() {
			host := hostOf(name)
			e.byHost[host] = append(e.byHost[host], i)
		}
	}
	for _, list := range [][]string{c.Hosts, c.Endpoints} {
		for _, h := range list {
			look = append(look, e.byHost[h]...)
		}
	}
	return look, false
}

// hostOf gives the service that an assignment is of.
func hostOf(name string) string {
	c, _ := names.ParseCluster(name)
	return c.Host
}

// work makes a state: anew, or with look from the last one, of which only those names may have changed.
func (e *entry) work(v *view, names *envoy.Names, last *state, look []int, get func(name string) (*envoy.Resource, bool)) *state {
	s := &state{from: v.Revision, to: v.Revision}
	if look == nil {
		s.list = make([]*envoy.Resource, names.Len())
		look = make([]int, names.Len())
		for i := range look {
			look[i] = i
		}
	} else {
		s.list, s.placed = slices.Clone(last.list), last.placed
	}
	for _, i := range look {
		name := names.All()[i]
		var r *envoy.Resource
		var placed bool
		if err := safe.Do("translate "+name, func() { r, placed = get(name) }); err != nil {
			if s.failed == nil {
				s.failed = map[string]error{}
			}
			s.failed[name] = err
			if last != nil {
				r = last.list[i]
			}
		}
		if last != nil && same(last.list[i], r) {
			r = last.list[i]
		}
		s.list[i], s.placed = r, s.placed || placed
	}
	if last != nil && last.set != nil && slices.Equal(s.list, last.list) {
		s.list, s.set = last.list, last.set
		return s
	}
	s.set = envoy.NewSet(slices.DeleteFunc(slices.Clone(s.list), func(r *envoy.Resource) bool { return r == nil }))
	return s
}

// same tells that a resource of which nothing is kept was made again.
func same(had, has *envoy.Resource) bool {
	return had != nil && has != nil && had.Version == has.Version && had.Body != nil && has.Body != nil && had.Head == has.Head
}

func (b *board) forget(k subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, k)
}
