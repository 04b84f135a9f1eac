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

// Subscribed returns the resources of a list of names, assignments or route configurations, as a cohort sees them.
// Resources that depend on where the proxy runs are in the inbound half; all others are in the outbound half, which the
// whole scope shares. A name that does not exist has an empty resource, so that Envoy goes on. A name whose translation
// fails keeps its last good resource, or is missing where there is none. Equal resources are equal Sets. For other
// types the result is empty.
func (t *Translator) Subscribed(s *snapshot.Snapshot, c cohort.Key, typeURL string, names *envoy.Names) (envoy.Union, error) {
	if names == nil {
		return envoy.Union{}, nil
	}
	v := t.view(s)
	k := subscriptionKey{typeURL: typeURL, scope: c.Scope.Weak(), names: weakOf(names)}
	switch typeURL {
	case envoy.RouteType:
		got := t.subscriptions.get(v, k, names, func(name string) (*envoy.Resource, bool) { return v.routeOrNone(c.Scope, name), false })
		return envoy.Union{Outbound: got.set}, got.err()
	case envoy.EndpointType:
		got := t.subscriptions.get(v, k, names, func(name string) (*envoy.Resource, bool) {
			k := v.assignmentKey(c.Inputs(), name)
			if k.located() {
				return nil, true
			}
			return v.assignment(k), false
		})
		u, err := envoy.Union{Outbound: got.set}, got.err()
		if got.located {
			k.located, k.node, k.location = true, c.Node, c.Location
			own := t.subscriptions.get(v, k, names, func(name string) (*envoy.Resource, bool) {
				k := v.assignmentKey(c.Inputs(), name)
				if !k.located() {
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

// assignment returns one assignment. Clients choose the names, so an assignment without a service is not cached.
func (v *view) assignment(k assignmentKey) *envoy.Resource {
	if k.service == nil {
		return v.t.hooks.buildAssignment(k)
	}
	return v.t.assignments.Get(k)
}

// routeOrNone is route, except that a route configuration without a listener is not cached.
func (v *view) routeOrNone(of cohort.Handle[cohort.Scope], name string) *envoy.Resource {
	c := of.Value()
	if c.Type == node.Router {
		if len(v.serversOf(c, name)) > 0 {
			return v.route(of, name)
		}
		return buildRoute(routeKeyOf(c, name, gatewayHostGenerator(v, c, name).generateAll(v), buildHeader))
	}
	b, ok := v.sidecarRouteBuilder(c, name)
	switch {
	case !ok, b.sniffed != "" && b.candidate(b.sniffed) == nil, isSocketRoute(name) && b.egress.Listener.GetPort() == nil: // a socket that no listener is bound to
		return buildHeader(headerKey{name: name})
	}
	return v.route(of, name)
}

// subscriptionKey is what streams that subscribe to the same names have in common.
type subscriptionKey struct {
	typeURL  string
	scope    weak.Pointer[cohort.Scope]
	located  bool // it holds the resources that depend on node and location, else all others
	node     string
	location cohort.Location
	names    weak.Pointer[envoy.Names]
}

func weakOf(n *envoy.Names) weak.Pointer[envoy.Names] { return weak.Make(n) }

// subscriptionCache caches what proxies subscribe to by name. The next version of a subscription is made by looking at
// the names that changes affect. A subscription is evicted when its list of names or its scope is garbage collected.
// Safe for concurrent use.
type subscriptionCache struct {
	cache[subscriptionKey, *subscriptionVersion]
	byHost map[weak.Pointer[envoy.Names]]frozen.Table[string] // the names of a list ordered by host, made on demand; guarded by mu
}

// subscriptionVersion is a subscription as it is in a span of revisions. Names that failed are tried again with each
// Snapshot.
type subscriptionVersion struct {
	span
	set      *envoy.Set
	located  bool // some of its names depend on where the proxy runs
	failed   map[string]error
	reported atomic.Bool
}

// err returns what failed, to its first caller only.
func (s *subscriptionVersion) err() error {
	if len(s.failed) == 0 || s.reported.Swap(true) {
		return nil
	}
	var all []error
	for _, err := range s.failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// get returns the version of a subscription in a Snapshot. build returns the resource of one name, or nil where it does
// not belong to this subscription, and reports whether it depends on where the proxy runs.
func (c *subscriptionCache) get(v *view, k subscriptionKey, names *envoy.Names, build func(name string) (*envoy.Resource, bool)) *subscriptionVersion {
	e, fresh := c.entry(k)
	if fresh {
		evictWith(&c.cache, k, names)
		evictWith(&c.cache, k, k.scope.Value())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, ok := e.versionAt(v.Revision); ok {
		return s
	}
	last, look := &subscriptionVersion{}, names.Each()
	if n := len(e.versions); n > 0 {
		last = e.versions[n-1]
		some, ok := c.affectedNames(v, k, names, last.to)
		some = slices.AppendSeq(some, maps.Keys(last.failed))
		switch late := v.Revision < last.to; { // the stream has fallen far behind
		case !ok && late:
			return refresh(v, &subscriptionVersion{}, look, build)
		case late:
			return refresh(v, last, slices.Values(some), build)
		case ok && len(some) == 0:
			last.to = v.Revision
			return last
		case ok:
			look = slices.Values(some)
		}
	} else if origin := names.Origin(); origin != nil {
		if from, some, ok := c.fromOrigin(v, k, origin, names, build); ok {
			last, look = from, slices.Values(some)
		}
	}
	next := refresh(v, last, look, build)
	e.add(next)
	return next
}

// fromOrigin makes a first version of a list from the version of the list that it was edited from. It returns the names
// that still have to be built, and reports whether the origin is cached.
func (c *subscriptionCache) fromOrigin(v *view, k subscriptionKey, origin, names *envoy.Names,
	build func(name string) (*envoy.Resource, bool),
) (*subscriptionVersion, []string, bool) {
	k.names = weakOf(origin)
	c.mu.Lock()
	cached := c.entries[k] != nil
	c.mu.Unlock()
	if !cached {
		return nil, nil, false
	}
	from := c.get(v, k, origin, build)
	var removed []*envoy.Resource
	var look []string
	frozen.Diff(origin.Table(), names.Table(), func(was, is string, had, has bool) {
		if has {
			look = append(look, is)
		} else if r := from.set.Get(was); r != nil {
			removed = append(removed, r)
		}
	})
	for name := range from.failed {
		if names.Has(name) {
			look = append(look, name)
		}
	}
	return &subscriptionVersion{located: from.located, set: from.set.With(removed, nil)}, look, true
}

// affectedNames returns the names that may differ between a view and another revision, earlier or later. It reports
// false where all of them may.
func (c *subscriptionCache) affectedNames(v *view, k subscriptionKey, names *envoy.Names, at uint64) (look []string, ok bool) {
	changes, ok := v.t.history.since(min(at, v.Revision), max(at, v.Revision))
	if !ok || changes.All || k.typeURL == envoy.RouteType && !changes.Empty() {
		return nil, false
	}
	if len(changes.Hosts)+len(changes.Endpoints) == 0 {
		return nil, true
	}
	hosts := c.namesByHost(names)
	for _, list := range [][]string{changes.Hosts, changes.Endpoints} {
		for _, h := range list {
			look = slices.AppendSeq(look, hosts.Where(func(name string) int { return strings.Compare(hostKeyOf(name), h) }))
		}
	}
	return look, true
}

// namesByHost returns the names of a list, those of one host together. Where its origin has such a table it is made
// from that.
func (c *subscriptionCache) namesByHost(names *envoy.Names) frozen.Table[string] {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := weakOf(names)
	if hosts, ok := c.byHost[at]; ok {
		return hosts
	}
	var hosts frozen.Table[string]
	origin := names.Origin()
	if of, ok := c.byHost[weakOf(origin)]; ok && origin != nil {
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
		hosts = frozen.TableOf(compareHostKeys, slices.SortedFunc(names.Each(), compareHostKeys))
	}
	if c.byHost == nil {
		c.byHost = map[weak.Pointer[envoy.Names]]frozen.Table[string]{}
	}
	c.byHost[at] = hosts
	runtime.AddCleanup(names, c.evictNames, at)
	return hosts
}

// refresh makes a version from another one by building some names again; no others may have changed.
func refresh(v *view, last *subscriptionVersion, look iter.Seq[string], build func(name string) (*envoy.Resource, bool)) *subscriptionVersion {
	s := &subscriptionVersion{span: span{v.Revision, v.Revision}, located: last.located}
	var removed, added []*envoy.Resource
	for name := range look {
		had := last.set.Get(name)
		var r *envoy.Resource
		var located bool
		if err := safe.Do("translate "+name, func() { r, located = build(name) }); err != nil {
			if s.failed == nil {
				s.failed = map[string]error{}
			}
			s.failed[name] = err
			continue
		}
		s.located = s.located || located
		switch {
		case r == had || equalContent(had, r):
		case r == nil:
			removed = append(removed, had)
		default:
			added = append(added, r)
		}
	}
	s.set = last.set.With(removed, added)
	return s
}

// equalContent reports whether a resource that is not cached was built again with the same content.
func equalContent(had, has *envoy.Resource) bool {
	if had == nil || has == nil || had.Version != has.Version || (had.Head == nil) != (has.Head == nil) {
		return false
	}
	if had.Head != nil {
		return had.Head.Version == has.Head.Version && had.Hosts.Equal(has.Hosts)
	}
	return had.Body != nil && has.Body != nil
}

// evictNames drops the table by host of a list that was garbage collected.
func (c *subscriptionCache) evictNames(names weak.Pointer[envoy.Names]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byHost, names)
}
