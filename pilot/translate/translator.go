package translate

import (
	"sync"
	"sync/atomic"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Options of a Translator.
type Options struct {
	Idle int // bytes of unused resources that the memo keeps; 0 turns the memo off
}

// Translator makes resources of Snapshots. Safe for concurrent use.
type Translator struct {
	memo *envoy.Memo

	clusters        *envoy.Table[clusterKey]
	inboundClusters *envoy.Table[inboundClusterKey]
	sentinels       *envoy.Table[sentinelKey]
	assignments     *envoy.Table[assignmentKey]
	outbound        *envoy.Table[outboundKey]
	virtualOutbound *envoy.Table[virtualOutboundKey]
	inbound         *envoy.Table[inboundKey]
	gateways        *envoy.Table[gatewayKey]
	headers         *envoy.Table[headerKey]
	hosts           *envoy.Table[hostKey]
	routes          *envoy.Table[routeKey]

	mu     sync.Mutex
	newest *view // of the newest Snapshot that was asked for: the next one is made from it
}

// New makes a Translator.
func New(o Options) *Translator {
	m := envoy.NewMemo(o.Idle)
	return &Translator{
		memo:            m,
		clusters:        envoy.NewTable(m, buildCluster),
		inboundClusters: envoy.NewTable(m, buildInboundCluster),
		sentinels:       envoy.NewTable(m, buildSentinel),
		assignments:     envoy.NewTable(m, buildAssignment),
		outbound:        envoy.NewTable(m, buildOutbound),
		virtualOutbound: envoy.NewTable(m, buildVirtualOutbound),
		inbound:         envoy.NewTable(m, buildInbound),
		gateways:        envoy.NewTable(m, buildGateway),
		headers:         envoy.NewTable(m, buildHeader),
		hosts:           envoy.NewTable(m, buildHost),
		routes:          envoy.NewTable(m, buildRoute),
	}
}

// Stats gives the memo's hits and misses since the start.
func (t *Translator) Stats() (hits, misses uint64) { return t.memo.Stats() }

// view is one Snapshot with what was worked out of it so far.
type view struct {
	*snapshot.Snapshot
	t     *Translator
	index *scope.Index

	hasPeerAuthentication bool

	sets        *sets
	assignments named[assignmentsKey]
}

// sets are those worked out so far, and the routes, shared by the views of Snapshots that differ in endpoints and workloads alone.
type sets struct {
	mu     sync.Mutex
	made   map[setKey]*setEntry
	last   map[setKey]*envoy.Set // of the Snapshot before: a Set that comes out the same keeps its pointer
	routes named[cohort.Scope]

	problems map[Problem]map[string]struct{}
}

// setKey names one half of a cohort's Set of one type.
type setKey struct {
	typeURL string
	scope   cohort.Scope
	proxy   cohort.Proxy
	inbound cohort.Inbound
}

// setEntry is one Set: worked out once, by whoever needs it first. Where that panics, it panics for everybody: a Set that is not there must not look empty.
type setEntry struct {
	get  func() *envoy.Set
	done atomic.Pointer[envoy.Set]
}

// Prepare makes ready to translate a Snapshot. To be called with each, in their order, before it is published: what is the same as in the one before is then kept.
func (t *Translator) Prepare(s *snapshot.Snapshot) { t.view(s) }

// view gives that of a Snapshot, with which it lives: a stream that is slow finds the one that it works on.
func (t *Translator) view(s *snapshot.Snapshot) *view {
	return s.Derived(t, func() any { return t.newView(s) }).(*view)
}

func (t *Translator) newView(s *snapshot.Snapshot) *view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.newest
	next := &view{Snapshot: s, t: t}
	if v != nil && s.Revision == v.Revision+1 && !s.Delta.Full {
		// Only endpoints and workloads changed: what is looked up by scope and what Sets hold stays. Workloads are read where proxies join alone.
		next.index, next.hasPeerAuthentication, next.sets = v.index.At(s), v.hasPeerAuthentication, v.sets
	} else {
		next.hasPeerAuthentication = len(s.AllObjects(kinds.PeerAuthentication)) > 0
		next.sets = &sets{made: map[setKey]*setEntry{}}
		if v == nil {
			next.index = scope.NewIndex(s, nil)
		} else {
			next.index, next.sets.last = scope.NewIndex(s, v.index), v.sets.finished()
		}
	}
	if v == nil || s.Revision > v.Revision {
		t.newest = next
	}
	return next
}

// Join says what a proxy's configuration is made from at a Snapshot.
func (t *Translator) Join(s *snapshot.Snapshot, p *node.Proxy) cohort.Proxy {
	return cohort.Of(t.view(s).index, p)
}

// Wildcard gives every cluster or listener of a cohort.
func (t *Translator) Wildcard(s *snapshot.Snapshot, c cohort.Proxy, typeURL string) envoy.Union {
	v := t.view(s)
	u := envoy.Union{}
	switch typeURL {
	case envoy.ClusterType:
		u.Outbound = v.sets.get(setKey{typeURL: typeURL, scope: c.Scope}, func() *envoy.Set { return v.outboundClusters(c.Scope) })
		u.Inbound = v.sets.get(setKey{typeURL: typeURL, inbound: c.Inbound}, func() *envoy.Set { return v.inboundClusters(c.Inbound) })
	case envoy.ListenerType:
		if c.Scope.Type == node.Router {
			u.Outbound = v.sets.get(setKey{typeURL: typeURL, proxy: cohort.Proxy{Scope: c.Scope, Outbound: c.Outbound}}, func() *envoy.Set { return v.gatewayListeners(c) })
			break
		}
		shared := cohort.Proxy{Scope: c.Scope, Outbound: c.Outbound}
		u.Outbound = v.sets.get(setKey{typeURL: typeURL, proxy: shared}, func() *envoy.Set { return v.outboundListeners(shared) })
		u.Inbound = v.sets.get(setKey{typeURL: typeURL, inbound: c.Inbound}, func() *envoy.Set { return v.inboundListeners(c.Inbound) })
		u.Omit = v.ownListeners(c, u.Outbound)
	}
	return u
}

// get gives one half of a cohort's Set, worked out once.
func (s *sets) get(k setKey, make func() *envoy.Set) *envoy.Set {
	s.mu.Lock()
	e := s.made[k]
	if e == nil {
		e = &setEntry{}
		last := s.last[k]
		e.get = sync.OnceValue(func() *envoy.Set {
			set := make()
			if set.Equal(last) {
				set = last
			}
			e.done.Store(set)
			return set
		})
		s.made[k] = e
	}
	s.mu.Unlock()
	return e.get()
}

// finished gives the Sets that are worked out.
func (s *sets) finished() map[setKey]*envoy.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make(map[setKey]*envoy.Set, len(s.made))
	for k, e := range s.made {
		if set := e.done.Load(); set != nil {
			done[k] = set
		}
	}
	return done
}

// Named gives one assignment or route configuration: an empty one where nothing has that name, so that Envoy goes on. Of other types nil.
func (t *Translator) Named(s *snapshot.Snapshot, c cohort.Proxy, typeURL, name string) *envoy.Resource {
	v := t.view(s)
	switch typeURL {
	case envoy.EndpointType:
		return v.assignments.get(assignmentsKey{c.Scope, c.Node, c.Place}, name, func() (*envoy.Resource, bool) { return v.assignment(c, name) })
	case envoy.RouteType:
		return v.sets.routes.get(c.Scope, name, func() (*envoy.Resource, bool) { return v.route(c.Scope, name) })
	}
	return nil
}

// Assignments names the assignments in which a cohort sees the endpoints of a service.
func (t *Translator) Assignments(s *snapshot.Snapshot, c cohort.Proxy, key registry.ServiceKey) []string {
	v := t.view(s)
	svc := v.Service(key)
	if svc == nil || v.index.Of(c.Scope.Namespace, c.Scope.Sidecar).ServiceByHost(key.Host) != svc {
		return nil
	}
	var list []string
	subsets := destinationrule.Subsets(v.rules(c.Scope, svc))
	for _, p := range svc.Ports {
		list = append(list, names.Cluster(names.Outbound, p.Number, "", svc.Host))
		for _, sub := range subsets {
			list = append(list, names.Cluster(names.Outbound, p.Number, sub.Name, svc.Host))
		}
	}
	return list
}
