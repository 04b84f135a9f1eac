package translate

import (
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/cds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/ecds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/eds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/grpc"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/lds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/nds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/patch"
	"github.com/istiod-lite/istiod-lite/pilot/translate/pcds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/sds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Options configures a Translator.
type Options struct {
	Idle     int                // limit in bytes for unused resources in the memo; 0 turns the memo off
	Now      func() time.Time   // clock; if nil, unused resources do not age
	Features []*feature.Feature // in the order in which they add to resources

	// Found is optional. Any goroutine calls it when a resource is made without a patch that should apply. It may be
	// called several times for one finding.
	Found func(diag.Diagnostic)
}

// Translator makes resources from Snapshots. Safe for concurrent use.
type Translator struct {
	features []*feature.Feature

	memo  *envoy.Memo
	cache engine.Cache
	types map[string]maker // by URL
	grpc  map[string]maker // makers of types that differ for applications that use xDS themselves
	keys  *cohort.Interner
	patch *patch.Patcher

	newStateFunc func(*snapshot.Snapshot) any // newState as a function value, allocated once because each Send needs it

	mu     sync.Mutex
	newest *state // state of the newest Snapshot, from which the next one is made
}

// maker makes the Sets of one type. Without names it returns all resources of a cohort, else those of the names.
type maker interface {
	Get(v *view.View, c cohort.Key, names *envoy.Names) (envoy.Union, error)
}

// makers returns the makers of all types. A new type needs a folder, a line here, and one in the layers of
// deploy/house.
func makers(m *envoy.Memo, h *hooks.Hooks, c *engine.Cache) (types, ofGRPC map[string]maker) {
	clusters, endpoints, routes := cds.New(m, h, c), eds.New(m, h, c), rds.New(m, h, c)
	types = map[string]maker{
		envoy.ClusterType:     clusters,
		envoy.EndpointType:    endpoints,
		envoy.ListenerType:    lds.New(m, h, c),
		envoy.RouteType:       routes,
		envoy.SecretType:      sds.New(m, c),
		envoy.NameTableType:   nds.New(m, c),
		envoy.ProxyConfigType: pcds.New(m, c),
		envoy.ExtensionType:   ecds.New(m, h, c),
	}
	ofGRPC = map[string]maker{
		envoy.ClusterType:  grpc.NewClusters(m, c, clusters),
		envoy.EndpointType: grpc.NewEndpoints(m, c, endpoints),
		envoy.ListenerType: grpc.NewListeners(m, h, c),
		envoy.RouteType:    grpc.NewRoutes(m, c, routes),
	}
	return types, ofGRPC
}

// New returns a Translator.
func New(o Options) *Translator {
	t := &Translator{features: o.Features, memo: envoy.NewMemo(o.Idle, o.Now), keys: cohort.NewInterner()}
	t.patch = patch.New(t.memo, o.Features, &t.cache, o.Found)
	t.types, t.grpc = makers(t.memo, hooks.New(o.Features, o.Idle > 0), &t.cache)
	t.newStateFunc = func(s *snapshot.Snapshot) any { return t.newState(s) }
	return t
}

// Stats returns the memo's hits and misses since the start.
func (t *Translator) Stats() (hits, misses uint64) { return t.memo.Stats() }

// Kept returns how many encoded resources the memo keeps.
func (t *Translator) Kept() int { return t.memo.Len() }

// Size returns how many encoded resources the memo can find, and how many unused ones were evicted since the start.
func (t *Translator) Size() (resources int, evictions uint64) {
	return t.memo.Size(), t.memo.Evictions()
}

// Each calls yield for each encoded resource in the memo, except for secrets, in no order.
func (t *Translator) Each(yield func(*envoy.Resource)) {
	t.memo.Each(func(r *envoy.Resource) {
		if !r.Secret() {
			yield(r)
		}
	})
}

// Bytes returns the approximate memory, in bytes, for some cohorts, without what the first of them has as well.
func (t *Translator) Bytes(cohorts []cohort.Key) int { return t.cache.Bytes(cohorts) }

// Conflicts returns all kinds of conflicts.
func Conflicts() []engine.Conflict { return view.Conflicts() }

// Count returns the number of conflicts of one kind in the Sets that were requested since the last full Snapshot.
func (t *Translator) Count(c engine.Conflict) int { return len(t.cache.Conflicts(c)) }

// About returns the subjects of the conflicts that Count counts, sorted.
func (t *Translator) About(c engine.Conflict) []string { return t.cache.Conflicts(c) }

// AllConflicts returns the results of About, by the name of each kind of conflict that exists.
func (t *Translator) AllConflicts() map[string][]string {
	out := map[string][]string{}
	for _, c := range Conflicts() {
		if about := t.About(c); len(about) > 0 {
			out[string(c)] = about
		}
	}
	return out
}

// state is derived from one Snapshot. The Snapshot holds it, so that it exists as long as a slow stream uses the
// Snapshot.
type state struct {
	index *scope.Index
	view  *view.View
}

// Prepare computes the state of a Snapshot. It must be called with each Snapshot, in order, before that is published,
// so that the cost is proportional to the Snapshot's changes.
func (t *Translator) Prepare(s *snapshot.Snapshot) { t.state(s) }

func (t *Translator) state(s *snapshot.Snapshot) *state { return s.Cached(t, t.newStateFunc).(*state) }

func (t *Translator) newState(s *snapshot.Snapshot) *state {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last *scope.Index
	if t.newest != nil {
		last = t.newest.index
	}
	x := scope.NewIndex(s, last)
	next := &state{x, view.New(x)}
	if last == nil || s.Revision > last.Revision {
		t.cache.Advance(s.Revision, &x.Dirty)
		t.newest = next
	}
	return next
}

// ResolveCohort returns the key of a proxy's cohort at a Snapshot. The key holds everything beside the Snapshot that
// the proxy's configuration depends on.
func (t *Translator) ResolveCohort(s *snapshot.Snapshot, p *node.Proxy) cohort.Key {
	return t.keys.Intern(cohort.Resolve(t.state(s).index, p, t.features))
}

// Selected returns the objects of a kind that apply to a proxy's workload at a Snapshot.
func (t *Translator) Selected(s *snapshot.Snapshot, p *node.Proxy, kind *kinds.Kind) []*kinds.Object {
	k := cohort.Resolve(t.state(s).index, p, t.features)
	return feature.ObjectsOf(kind, k.Client.Selections, k.Outbound.Selections, k.Inbound.Selections, k.Patches.Selections)
}

// SelectionWith returns the Selection that has an object, for a proxy's workload at a Snapshot.
func (t *Translator) SelectionWith(s *snapshot.Snapshot, p *node.Proxy, o *kinds.Object) feature.Selection {
	k := cohort.Resolve(t.state(s).index, p, t.features)
	return feature.With(o, k.Client.Selections, k.Outbound.Selections, k.Inbound.Selections, k.Patches.Selections)
}

// Visible returns the scope of a proxy, and a function that returns the DestinationRules of one of its services.
func (t *Translator) Visible(s *snapshot.Snapshot, p *node.Proxy) (*scope.Scope, func(*registry.Service) []*kinds.Object) {
	x := t.state(s).index
	c := cohort.Resolve(x, p, t.features).Client
	return x.ScopeOf(c.Namespace, c.Sidecar), func(svc *registry.Service) []*kinds.Object {
		return slices.Collect(x.DestinationRules(c.Namespace, svc, c.Rules).All)
	}
}

// Compare reports whether streams must compare all their resources with a Snapshot, because more than endpoints and
// single workloads changed since the previous one.
func (t *Translator) Compare(s *snapshot.Snapshot) bool { return t.state(s).index.Dirty.Compare }

// ReassignsOnly reports whether proxies may belong to other cohorts than at the previous Snapshot, and no resource of a
// cohort differs.
func (t *Translator) ReassignsOnly(s *snapshot.Snapshot) bool {
	return t.state(s).index.Dirty.ReassignsOnly()
}

// NeedsReassign reports whether a proxy may belong to another cohort at a Snapshot than it did at an earlier revision.
func (t *Translator) NeedsReassign(s *snapshot.Snapshot, p *node.Proxy, last cohort.Key, since uint64) bool {
	t.state(s)
	return last.UnknownWorkload || t.cache.MayReassign(since, s.Revision, p.Namespace)
}

// Get returns the resources of a type that a cohort is sent. For types to which proxies subscribe by name, names are
// the subscribed names. Otherwise names is nil, and all resources are returned. gRPC also names listeners and clusters.
// For a key that is Shared, Get returns the half that its proxies have in common. A name that does not exist has an
// empty resource, so that Envoy does not wait. A name whose translation fails keeps its last good resource, or is
// missing if there is none. Equal resources are equal Sets. A type that is not generated has no resources.
func (t *Translator) Get(s *snapshot.Snapshot, c cohort.Key, typeURL string, names *envoy.Names) (envoy.Union, error) {
	p, named := t.types[typeURL], envoy.TypeOf(typeURL).Named
	if of := t.grpc[typeURL]; of != nil && c.Client.Value().Proxyless {
		p, named = of, true
	}
	if p == nil || named != (names != nil) {
		return envoy.Union{}, nil
	}
	v := t.state(s).view
	u, err := p.Get(v, c, names)
	return t.patch.Union(v, c, typeURL, names, u), err
}

// Findings returns findings about the patches of resources that were requested since the last full Snapshot: patches
// that are left out, and patches that match nothing.
func (t *Translator) Findings() []diag.Diagnostic { return t.patch.Findings() }
