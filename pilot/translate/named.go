package translate

import (
	"errors"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Subscribed gives the resources of those names, assignments or route configurations, as a cohort sees them: those that depend on where the proxy runs are the
// inbound half, for they alone are not shared by the whole scope. What does not exist is there, and empty, so that Envoy goes on. Equal resources are equal Sets.
// A name whose translation fails keeps what it had in the last Snapshot; where there is none it is missing. Of other types it gives nothing.
func (t *Translator) Subscribed(s *snapshot.Snapshot, c cohort.Key, typeURL string, names *envoy.Names) (envoy.Union, error) {
	if names == nil {
		return envoy.Union{}, nil
	}
	v := t.view(s)
	k := subscription{typeURL: typeURL, scope: c.Scope.Weak(), names: weakOf(names)}
	switch typeURL {
	case envoy.RouteType:
		got := t.board.get(v, k, names, func(name string) (*envoy.Resource, bool) { return v.routeOrNone(c.Scope, name), false })
		return envoy.Union{Outbound: got.set}, got.err()
	case envoy.EndpointType:
		got := t.board.get(v, k, names, func(name string) (*envoy.Resource, bool) {
			k := v.assignmentKey(c.Inputs(), name)
			if k.placed() {
				return nil, true
			}
			return v.assignment(k), false
		})
		u, err := envoy.Union{Outbound: got.set}, got.err()
		if got.placed {
			k.placed, k.node, k.place = true, c.Node, c.Location
			own := t.board.get(v, k, names, func(name string) (*envoy.Resource, bool) {
				k := v.assignmentKey(c.Inputs(), name)
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

// routeOrNone is route, except that of a name that no listener has nothing is kept.
func (v *view) routeOrNone(of cohort.Handle[cohort.Scope], name string) *envoy.Resource {
	c := of.Value()
	if c.Type == node.Router {
		if len(v.serversOf(c, name)) > 0 {
			return v.route(of, name)
		}
		return buildRoute(routeKeyOf(c, name, gatewayRecipe(v, c, name).anew(v), buildHeader))
	}
	b, ok := v.routing(c, name)
	switch {
	case !ok, b.sniffed != "" && b.claim(b.sniffed) == nil, ofSocket(name) && b.egress.Listener.GetPort() == nil: // a socket that no listener is bound to
		return buildHeader(headerKey{name: name})
	}
	return v.route(of, name)
}

// subscription is what streams share that ask for the same names.
type subscription struct {
	typeURL string
	scope   weak.Pointer[cohort.Scope]
	placed  bool // only what depends on the two
	node    string
	place   cohort.Location
	names   weak.Pointer[envoy.Names]
}

func weakOf(n *envoy.Names) weak.Pointer[envoy.Names] { return weak.Make(n) }

// board holds what proxies subscribe to by name: each subscription's next Set is made by looking at what changed alone. Those whose names nobody holds any more are
// forgotten. Safe for concurrent use.
type board struct {
	kept[subscription, *state]
	hosts map[weak.Pointer[envoy.Names]]frozen.Table[string] // names by host, of the lists of which somebody wanted that; mu's
}

// state is what a subscription was in some revisions. The names that failed are looked at again each time.
type state struct {
	span
	set    *envoy.Set
	placed bool // some depend on where the proxy runs
	failed map[string]error
	told   atomic.Bool
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
	e, fresh := b.of(k)
	if fresh {
		forgotten(&b.kept, k, names)
		forgotten(&b.kept, k, k.scope.Value())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.at(v.Revision); ok {
		return s
	}
	last, look := &state{}, names.Each()
	if n := len(e.versions); n > 0 {
		last = e.versions[n-1]
		some, ok := b.due(v, k, names, last.to)
		some = slices.AppendSeq(some, maps.Keys(last.failed))
		switch late := v.Revision < last.to; { // a stream that has fallen far behind
		case !ok && late:
			return work(v, &state{}, look, make)
		case late:
			return work(v, last, slices.Values(some), make)
		case ok && len(some) == 0:
			last.to = v.Revision
			return last
		case ok:
			look = slices.Values(some)
		}
	} else if origin := names.Origin(); origin != nil {
		if from, some, ok := b.grow(v, k, origin, names, make); ok {
			last, look = from, slices.Values(some)
		}
	}
	next := work(v, last, look, make)
	e.add(next)
	return next
}

// grow makes of the state of one list what it says of another list, and gives the names that it does not know. false: nobody asked for the one.
func (b *board) grow(v *view, k subscription, origin, names *envoy.Names, make func(name string) (*envoy.Resource, bool)) (*state, []string, bool) {
	k.names = weakOf(origin)
	b.mu.Lock()
	known := b.made[k] != nil
	b.mu.Unlock()
	if !known {
		return nil, nil, false
	}
	from := b.get(v, k, origin, make)
	var gone []*envoy.Resource
	var look []string
	frozen.Diff(origin.Table(), names.Table(), func(was, is string, had, has bool) {
		if has {
			look = append(look, is)
		} else if r := from.set.Get(was); r != nil {
			gone = append(gone, r)
		}
	})
	for name := range from.failed {
		if names.Has(name) {
			look = append(look, name)
		}
	}
	return &state{placed: from.placed, set: from.set.With(gone, nil)}, look, true
}

// due gives the names that may be others in a view than at a revision before it, or after. false: all may be.
func (b *board) due(v *view, k subscription, names *envoy.Names, at uint64) (look []string, ok bool) {
	c, ok := v.t.history.since(min(at, v.Revision), max(at, v.Revision))
	if !ok || c.All || k.typeURL == envoy.RouteType && !c.Empty() {
		return nil, false
	}
	if len(c.Hosts)+len(c.Endpoints) == 0 {
		return nil, true
	}
	hosts := b.byHost(names)
	for _, list := range [][]string{c.Hosts, c.Endpoints} {
		for _, h := range list {
			look = slices.AppendSeq(look, hosts.Where(func(name string) int { return strings.Compare(tail(name), h) }))
		}
	}
	return look, true
}

// byHost gives names, those of one host together: made from its origin's where that has been asked for.
func (b *board) byHost(names *envoy.Names) frozen.Table[string] {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := weakOf(names)
	if hosts, ok := b.hosts[at]; ok {
		return hosts
	}
	var hosts frozen.Table[string]
	origin := names.Origin()
	if of, ok := b.hosts[weakOf(origin)]; ok && origin != nil {
		e := &frozen.Edit{}
		hosts = of
		frozen.Diff(origin.Table(), names.Table(), func(was, is string, had, has bool) {
			if has {
				hosts.Put(e, is)
			} else {
				hosts.Delete(e, was)
			}
		})
		e.Done()
	} else {
		hosts = frozen.TableOf(compareTails, slices.SortedFunc(names.Each(), compareTails))
	}
	if b.hosts == nil {
		b.hosts = map[weak.Pointer[envoy.Names]]frozen.Table[string]{}
	}
	b.hosts[at] = hosts
	runtime.AddCleanup(names, b.forgetHosts, at)
	return hosts
}

// work makes a state from another, by looking at some names: no others may have changed.
func work(v *view, last *state, look iter.Seq[string], get func(name string) (*envoy.Resource, bool)) *state {
	s := &state{span: span{v.Revision, v.Revision}, placed: last.placed}
	var gone, made []*envoy.Resource
	for name := range look {
		had := last.set.Get(name)
		var r *envoy.Resource
		var placed bool
		if err := safe.Do("translate "+name, func() { r, placed = get(name) }); err != nil {
			if s.failed == nil {
				s.failed = map[string]error{}
			}
			s.failed[name] = err
			continue
		}
		s.placed = s.placed || placed
		switch {
		case r == had || same(had, r):
		case r == nil:
			gone = append(gone, had)
		default:
			made = append(made, r)
		}
	}
	s.set = last.set.With(gone, made)
	return s
}

// same tells that a resource of which nothing is kept was made again.
func same(had, has *envoy.Resource) bool {
	if had == nil || has == nil || had.Version != has.Version || (had.Head == nil) != (has.Head == nil) {
		return false
	}
	if had.Head != nil {
		return had.Head.Version == has.Head.Version && had.Hosts.Equal(has.Hosts)
	}
	return had.Body != nil && has.Body != nil
}

func (b *board) forgetHosts(names weak.Pointer[envoy.Names]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hosts, names)
}
