package translate

import (
	"sync"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// Options of a Translator.
type Options struct {
	Idle     int                // bytes of unused resources that the memo keeps; 0 turns the memo off
	Features []*feature.Feature // in the order of what they add to resources

	Rules []scope.Rule // of invalidation; nil stands for scope.Rules(): tests leave one out
}

// Translator makes resources of Snapshots. Safe for concurrent use.
type Translator struct {
	memo  *envoy.Memo
	hooks *hooks
	rules []scope.Rule

	clusters        *envoy.Table[clusterKey]
	inboundClusters *envoy.Table[inboundClusterKey]
	fixedClusters   *envoy.Table[fixedClusterKey]
	assignments     *envoy.Table[assignmentKey]
	outbound        *envoy.Table[outboundKey]
	virtualOutbound *envoy.Table[virtualOutboundKey]
	inbound         *envoy.Table[inboundKey]
	gateways        *envoy.Table[gatewayKey]
	headers         *envoy.Table[headerKey]
	virtualHosts    *envoy.Table[virtualHostKey]
	routes          *envoy.Table[routeKey]

	keys          *cohort.Interner
	history       history
	subscriptions subscriptionCache
	sets          cache[setKey, *version]
	omitted       envoy.NameInterner
	derive        func(*snapshot.Snapshot) any // newView as a function value, allocated once because each Send needs it

	mu     sync.Mutex
	newest *view // of the newest Snapshot; the next view is made from it
}

// New returns a Translator.
func New(o Options) *Translator {
	m, h := envoy.NewMemo(o.Idle), newHooks(o.Features)
	t := &Translator{
		memo:            m,
		hooks:           h,
		rules:           o.Rules,
		keys:            cohort.NewInterner(),
		clusters:        envoy.NewTable(m, h.buildCluster),
		inboundClusters: envoy.NewTable(m, buildInboundCluster),
		fixedClusters:   envoy.NewTable(m, h.buildFixedCluster),
		assignments:     envoy.NewTable(m, h.buildAssignment),
		outbound:        envoy.NewTable(m, h.buildOutbound),
		virtualOutbound: envoy.NewTable(m, h.buildVirtualOutbound),
		inbound:         envoy.NewTable(m, h.buildInbound),
		gateways:        envoy.NewTable(m, h.buildGateway),
		headers:         envoy.NewTable(m, buildHeader),
		virtualHosts:    envoy.NewTable(m, buildVirtualHost),
		routes:          envoy.NewTable(m, buildRoute),
	}
	t.derive = func(s *snapshot.Snapshot) any { return t.newView(s) }
	return t
}

// Stats returns the memo's hits and misses since the start.
func (t *Translator) Stats() (hits, misses uint64) { return t.memo.Stats() }

// view is one Snapshot with everything that was derived from it so far.
type view struct {
	*scope.Index
	t *Translator

	mergedRules  *mergedRules
	serverTables *serverTables

	conflicts *conflictLog // collects conflicts; nil where nobody does
}

// Prepare makes ready to translate a Snapshot. It must be called with each Snapshot, in order, before that is
// published: then only what the Snapshot changed is made again.
func (t *Translator) Prepare(s *snapshot.Snapshot) { t.view(s) }

// view returns the view of a Snapshot. They live as long as each other, so a slow stream finds the one that it still
// uses.
func (t *Translator) view(s *snapshot.Snapshot) *view {
	return s.Derived(t, t.derive).(*view)
}

func (t *Translator) newView(s *snapshot.Snapshot) *view {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.newest
	var last *scope.Index
	if v != nil {
		last = v.Index
	}
	next := &view{
		Index: scope.NewIndex(s, last, t.rules), t: t, mergedRules: &mergedRules{}, serverTables: &serverTables{},
	}
	if v == nil || s.Revision > v.Revision {
		t.history.record(s.Revision, &next.Dirty)
		if s.Diff.Full {
			t.sets.advance(s.Revision)
			t.subscriptions.advance(s.Revision)
		}
		t.newest = next
	}
	return next
}

// ResolveCohort returns the key of a proxy's cohort at a Snapshot: what its configuration is made from.
func (t *Translator) ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) cohort.Key {
	return t.keys.Intern(cohort.Resolve(t.view(s).Index, p, t.hooks.features))
}

// NeedsReassign reports whether a proxy may belong to another cohort at a Snapshot than it did at an earlier revision.
func (t *Translator) NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last cohort.Key, since uint64) bool {
	t.view(s)
	return last.UnknownWorkload || t.history.mayReassign(since, s.Revision, p.Namespace)
}

// Get returns the resources of a type that a cohort is sent: those of the names, as Subscribed, or all without any, as
// Wildcard. Of a key that is Shared, it is what all its proxies have in common.
func (t *Translator) Get(
	s *snapshot.Snapshot, c cohort.Key, typeURL string, names *envoy.Names,
) (envoy.Union, error) {
	if names == nil {
		return t.Wildcard(s, c, typeURL), nil
	}
	return t.Subscribed(s, c, typeURL, names)
}

// Wildcard returns every cluster or listener of a cohort.
func (t *Translator) Wildcard(s *snapshot.Snapshot, c cohort.Key, typeURL string) envoy.Union {
	v := t.view(s)
	u := envoy.Union{Outbound: v.outboundSet(c, typeURL)}
	if c.Inbound.None() {
		return u
	}
	k := setKey{typeURL: typeURL, inbound: c.Inbound.Weak()}
	switch {
	case typeURL == envoy.ClusterType:
		u.Inbound = cachedSet(v, k, func() generator[struct{}] {
			return singlePartition(func(v *view) []*envoy.Resource { return v.inboundClusters(c.Inbound.Value()) }, meshChanged)
		}).set
	case typeURL == envoy.ListenerType && c.Scope.Value().Type != node.Router:
		u.Inbound = cachedSet(v, k, func() generator[struct{}] {
			return singlePartition(func(v *view) []*envoy.Resource { return v.inboundListeners(c.Inbound.Value()) }, meshChanged)
		}).set
		u.Omit = v.ownHeadlessListeners(c, u.Outbound)
	}
	return u
}

func (v *view) outboundSet(c cohort.Key, typeURL string) *envoy.Set {
	switch {
	case typeURL == envoy.ClusterType:
		return cachedSet(v, setKey{typeURL: typeURL, scope: c.Scope.Weak()}, func() generator[string] { return clusterGenerator(c.Scope.Value()) }).set
	case typeURL != envoy.ListenerType:
		return nil
	case c.Scope.Value().Type == node.Router:
		return cachedSet(v, setKey{typeURL: typeURL, listeners: c.Listeners.Weak()}, func() generator[struct{}] {
			return singlePartition(func(v *view) []*envoy.Resource { return v.gatewayListeners(outboundProxy(c)) }, anyChange)
		}).set
	}
	return cachedSet(v, setKey{typeURL: typeURL, listeners: c.Listeners.Weak()}, func() generator[bindKey] { return listenerGenerator(outboundProxy(c)) }).set
}

// outboundProxy returns what proxies that share listeners for outgoing traffic have in common.
func outboundProxy(c cohort.Key) cohort.Inputs {
	l := c.Listeners.Value()
	return cohort.Inputs{Scope: l.Scope, Outbound: l.Outbound}
}

// meshChanged reports that a Set is stale which depends on a cohort and the mesh configuration alone.
func meshChanged(c *scope.Dirty) bool { return c.All }

// anyChange reports that a Set is stale which may depend on anything.
func anyChange(c *scope.Dirty) bool { return !c.Empty() }

// Named returns one assignment or route configuration. It is empty where nothing has that name, so that Envoy goes on.
// For other types it returns nil.
func (t *Translator) Named(s *snapshot.Snapshot, c cohort.Key, typeURL, name string) *envoy.Resource {
	v := t.view(s)
	switch typeURL {
	case envoy.EndpointType:
		return t.assignments.Get(v.assignmentKey(c.Inputs(), name))
	case envoy.RouteType:
		return v.route(c.Scope, name)
	}
	return nil
}
