package translate

import (
	"sync"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Options of a Translator.
type Options struct {
	Idle     int    // unused resources that the memo keeps; 0 turns the memo off
	Conflict func() // called when two services want one port in ways that exclude each other; may be nil
}

// Translator makes resources of Snapshots. Safe for concurrent use.
type Translator struct {
	options Options
	memo    *envoy.Memo

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
	newest *view // of the newest Snapshot that was asked for
}

// New makes a Translator.
func New(o Options) *Translator {
	if o.Conflict == nil {
		o.Conflict = func() {}
	}
	m := envoy.NewMemo(o.Idle)
	return &Translator{
		options: o, memo: m,
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

	mu   sync.Mutex
	sets map[setKey]*setEntry
	last map[setKey]*envoy.Set // of the Snapshot before: a Set that comes out the same keeps its pointer
}

// setKey names one half of a cohort's Set of one type.
type setKey struct {
	typeURL string
	scope   cohort.Scope
	proxy   cohort.Proxy
	inbound cohort.Inbound
}

type setEntry struct {
	once sync.Once
	set  *envoy.Set
}

func (t *Translator) view(s *snapshot.Snapshot) *view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.newest
	if v != nil && v.Snapshot == s {
		return v
	}
	var last *scope.Index
	if v != nil {
		last = v.index
	}
	next := &view{Snapshot: s, t: t, sets: map[setKey]*setEntry{}, last: map[setKey]*envoy.Set{}}
	if v != nil && s.Revision == v.Revision+1 && !s.Delta.Full && len(s.Delta.Workloads) == 0 {
		// Only endpoints changed: what is looked up by scope and what Sets hold stays.
		next.index = v.index.At(s)
		next.hasPeerAuthentication = v.hasPeerAuthentication
		v.mu.Lock()
		next.sets, next.last = v.sets, v.last
		v.mu.Unlock()
	} else {
		next.index = scope.NewIndex(s, last)
		next.hasPeerAuthentication = len(s.AllObjects(kinds.PeerAuthentication)) > 0
		if v != nil {
			v.mu.Lock()
			for k, e := range v.sets {
				if e.set != nil {
					next.last[k] = e.set
				}
			}
			v.mu.Unlock()
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
		u.Outbound = v.set(setKey{typeURL: typeURL, scope: c.Scope}, func() *envoy.Set { return v.outboundClusters(c.Scope) })
		u.Inbound = v.set(setKey{typeURL: typeURL, inbound: c.Inbound}, func() *envoy.Set { return v.inboundClusters(c.Inbound) })
	case envoy.ListenerType:
		if c.Scope.Type == node.Router {
			u.Outbound = v.set(setKey{typeURL: typeURL, proxy: cohort.Proxy{Scope: c.Scope, Outbound: c.Outbound}}, func() *envoy.Set { return v.gatewayListeners(c) })
			break
		}
		shared := cohort.Proxy{Scope: c.Scope, Outbound: c.Outbound}
		u.Outbound = v.set(setKey{typeURL: typeURL, proxy: shared}, func() *envoy.Set { return v.outboundListeners(shared) })
		u.Inbound = v.set(setKey{typeURL: typeURL, inbound: c.Inbound}, func() *envoy.Set { return v.inboundListeners(c.Inbound) })
		u.Omit = v.ownListener(c, u.Outbound)
	}
	return u
}

// set gives one half of a cohort's Set, worked out once a Snapshot.
func (v *view) set(k setKey, make func() *envoy.Set) *envoy.Set {
	v.mu.Lock()
	e := v.sets[k]
	if e == nil {
		e = &setEntry{}
		v.sets[k] = e
	}
	last := v.last[k]
	v.mu.Unlock()
	e.once.Do(func() {
		s := make()
		if s.Equal(last) {
			s = last
		}
		e.set = s
	})
	return e.set
}

// Named gives one assignment or route configuration: an empty one where nothing has that name, so that Envoy goes on. Of other types nil.
func (t *Translator) Named(s *snapshot.Snapshot, c cohort.Proxy, typeURL, name string) *envoy.Resource {
	v := t.view(s)
	switch typeURL {
	case envoy.EndpointType:
		return v.assignment(c.Scope, name)
	case envoy.RouteType:
		return v.route(c, name)
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
