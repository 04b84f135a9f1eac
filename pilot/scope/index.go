package scope

import (
	"cmp"
	"slices"
	"sync"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Index holds one Snapshot's services and routing objects in the orders in which they are looked up. It is immutable
// apart from its caches, and safe for concurrent use.
type Index struct {
	*snapshot.Snapshot
	tables
	Dirty Dirty // difference from the previous Index

	clusterLocal []clusterLocalRule
	trace        *trace // nil unless a test traces what is read

	resolving int // the number of services whose called hosts proxies resolve

	placedOnce sync.Once
	placed     placement
	sortedBy   []string // sorted labels by which rules or the mesh sort endpoints

	mu     sync.Mutex
	scopes map[scopeKey]*Scope

	rulesCache rulesCache

	endpointServicesOnce sync.Once
	endpointServices     map[string][]*registry.Service // services by endpoint address; made on first use
}

// NewIndex returns the Index of a Snapshot. last is an earlier Index, or nil. If last is the Index of the previous
// Snapshot, the cost is proportional to the changes.
func NewIndex(s *snapshot.Snapshot, last *Index) *Index {
	return NewIndexByRules(s, last, InvalidationRules())
}

// NewIndexByRules is NewIndex with a choice of invalidation rules, for tests of the rules.
func NewIndexByRules(s *snapshot.Snapshot, last *Index, rules []InvalidationRule) *Index {
	x := &Index{Snapshot: s, scopes: map[scopeKey]*Scope{}}
	if last == nil || last.Revision+1 != s.Revision || delegatesAnew(last.Mesh, s.Mesh) {
		x.tables, x.clusterLocal = newTables(), clusterLocalRules(s.Mesh, s.Domain)
		x.apply(fullDiff(s))
		x.Dirty = Dirty{All: true, Reassign: Reassign{All: true}, Compare: true}
		return x
	}
	x.tables, x.clusterLocal, x.resolving = last.tables, last.clusterLocal, last.resolving
	if s.Diff.Global {
		x.clusterLocal = clusterLocalRules(s.Mesh, s.Domain)
	}
	x.apply(&s.Diff)
	x.Dirty = x.findDirty(last, rules)
	return x
}

// delegatesAnew reports whether a change of the mesh configuration may change which VirtualServices are delegates. This
// is rare.
func delegatesAnew(a, b *mesh.Config) bool {
	return a != b && !slices.Equal(a.GetDefaultVirtualServiceExportTo(), b.GetDefaultVirtualServiceExportTo())
}

// ResolvesHosts reports whether there is a service for which proxies resolve the called hosts.
func (x *Index) ResolvesHosts() bool {
	if x.trace != nil && x.trace.resolves {
		x.trace.found("services whose called hosts are resolved", x.resolving > 0)
	}
	return x.resolving > 0
}

// Kinds returns the kinds of the objects from which scopes are made.
func Kinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.VirtualService, kinds.DestinationRule, kinds.Sidecar, kinds.Gateway}
}

// structural reports whether scopes are made from objects of a kind.
func structural(kind *kinds.Kind) bool { return slices.Contains(Kinds(), kind) }

// fullDiff returns the Diff between an empty Snapshot and this one.
func fullDiff(s *snapshot.Snapshot) *snapshot.Diff {
	d := &snapshot.Diff{}
	for _, svc := range s.Services() {
		d.Services = append(d.Services, snapshot.ServiceChange{New: svc})
	}
	for _, k := range []*kinds.Kind{kinds.DestinationRule, kinds.VirtualService} {
		for _, o := range s.AllObjects(k) {
			d.Configs = append(d.Configs, snapshot.ConfigChange{New: o})
		}
	}
	return d
}

// apply updates the tables.
func (x *Index) apply(d *snapshot.Diff) {
	if len(d.Services)+len(d.Configs)+len(d.OldEndpoints) == 0 {
		return
	}
	t, e := &x.tables, &frozen.Edit{}
	oldEndpoints := make(map[registry.ServiceKey]*snapshot.Endpoints, len(d.OldEndpoints))
	for _, b := range d.OldEndpoints {
		oldEndpoints[b.ServiceKey] = b.Endpoints
	}
	endpoints := func(s *registry.Service) *snapshot.Endpoints {
		if s != nil {
			if eps := oldEndpoints[s.Key()]; eps != nil {
				return eps
			}
			return x.Endpoints(s.Key())
		}
		return nil
	}
	for _, c := range d.Services {
		if c.Old != nil && c.Old.Resolution == registry.DynamicDNS {
			x.resolving--
		}
		if c.New != nil && c.New.Resolution == registry.DynamicDNS {
			x.resolving++
		}
		t.setService(e, c.Old, endpoints(c.Old), false)
		if c.New != nil {
			t.setService(e, c.New, x.Endpoints(c.New.Key()), true)
			delete(oldEndpoints, c.New.Key())
		}
	}
	for k, eps := range oldEndpoints { // services whose endpoints alone changed
		if s := x.Service(k); s != nil && (locatedByEndpoints(s) || x.embedsEndpoints(k)) {
			t.setService(e, s, eps, false)
			t.setService(e, s, x.Endpoints(k), true)
		}
	}
	roots := map[kinds.Key]struct{}{}
	for _, c := range d.Configs {
		o := c.New
		o = cmp.Or(o, c.Old)
		switch o.Kind {
		case kinds.DestinationRule:
			if c.Old != nil {
				t.setDestinationRule(e, x.destinationRule(c.Old), false)
			}
			if c.New != nil {
				t.setDestinationRule(e, x.destinationRule(c.New), true)
			}
		case kinds.VirtualService:
			roots[o.Key] = struct{}{}
			for r := range t.delegations.Where(withDelegate(o.Namespace + "/" + o.Name)) {
				roots[r.root] = struct{}{}
			}
		}
	}
	for k := range roots {
		if old, ok := t.virtualServices.Get(&VirtualService{Object: &kinds.Object{Key: k}}); ok {
			t.setVirtualService(e, old, false)
		}
		if v := x.virtualService(k); v != nil {
			t.setVirtualService(e, v, true)
		}
	}
	e.Done()
}

// HasHost reports whether any service or VirtualService has a host.
func (x *Index) HasHost(host string) bool {
	for range x.ServicesByHost(host) {
		return true
	}
	_, ok := x.meshHosts.First(withName(host))
	return ok
}

// HostByLabel returns the first host of a service or VirtualService whose first label is label, and reports whether
// there are more.
func (x *Index) HostByLabel(label string) (host string, more bool) {
	if x.traced() {
		return "", true
	}
	add := func(h string) bool {
		more = host != "" && h != host
		host = cmp.Or(host, h)
		return !more
	}
	if x.HasHost(label) {
		add(label)
	}
	prefix := label + "."
	for s := range x.ServicesByHostPrefix(prefix) {
		if !add(s.Host) {
			return host, true
		}
	}
	for l := range x.meshHosts.Where(func(l link) int { return frozen.ComparePrefix(l.name, prefix) }) {
		if !add(l.name) {
			return host, true
		}
	}
	return host, more
}

// Objects is Snapshot.Objects, for kinds whose changes a Diff lists.
func (x *Index) Objects(kind *kinds.Kind, ns string) []*kinds.Object {
	x.mustBeRead(kind)
	return x.Snapshot.Objects(kind, ns)
}

// AllObjects is Snapshot.AllObjects, for kinds whose changes a Diff lists.
func (x *Index) AllObjects(kind *kinds.Kind) []*kinds.Object {
	x.mustBeRead(kind)
	return x.Snapshot.AllObjects(kind)
}

// Object is Snapshot.Object, for kinds whose changes a Diff lists.
func (x *Index) Object(k kinds.Key) *kinds.Object {
	x.mustBeRead(k.Kind)
	return x.Snapshot.Object(k)
}

// mustBeRead panics for a kind whose changes a Diff does not list, because proxies would keep outdated configuration.
func (x *Index) mustBeRead(kind *kinds.Kind) {
	if x.Reach(kind) == snapshot.Unread {
		panic("scope: " + kind.Name + " is read, and the Snapshot does not compare its objects")
	}
}
