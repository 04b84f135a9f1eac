package scope

import (
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// InvalidationRule is one way in which a change makes resources, or the cohorts of proxies, dirty. Each hook may be
// nil.
type InvalidationRule struct {
	Name string

	start  func(b *dirtyBuilder)              // first hook: adds what the change itself names
	follow func(b *dirtyBuilder, host string) // adds the dependents of a host whose services, endpoints, rules or routes changed
	routes func(b *dirtyBuilder)              // last hook: adds what makes no listener dirty
}

// InvalidationRules returns all invalidation rules. Rules about a table are beside the table. Only these decide what a
// change makes dirty.
func InvalidationRules() []InvalidationRule {
	return slices.Concat(meshInvalidation(), serviceInvalidation(), destinationRuleInvalidation(), virtualServiceInvalidation(),
		providerInvalidation())
}

// meshInvalidation returns the invalidation rules for the mesh configuration, workloads and objects that select
// workloads.
func meshInvalidation() []InvalidationRule {
	return []InvalidationRule{
		{Name: "mesh", start: func(b *dirtyBuilder) {
			b.dirty.All = b.dirty.All || b.diff.Global
			b.dirty.Reassign.All = b.dirty.Reassign.All || b.diff.Global
		}},
		{Name: "called hosts", start: func(b *dirtyBuilder) {
			b.dirty.All = b.dirty.All || b.index.ResolvesHosts() != b.last.ResolvesHosts()
		}},
		{Name: "roots", start: func(b *dirtyBuilder) { b.dirty.Roots = b.diff.Roots }},
		{Name: "workloads", start: func(b *dirtyBuilder) {
			b.dirty.Reassign.All = b.dirty.Reassign.All || len(b.diff.Workloads) > 0
		}},
		{Name: "policies of whom proxies call", start: func(b *dirtyBuilder) {
			for o := range b.changedObjects {
				b.dirty.All = b.dirty.All || !structural(o.Kind) && b.index.Reach(o.Kind) == snapshot.Everywhere
			}
		}},
		{Name: "selecting objects", start: func(b *dirtyBuilder) {
			for o := range b.changedObjects {
				switch only := kinds.GatewayNamespace(o, b.index.ScopedGateways); {
				case o.Kind == kinds.Gateway && only != "":
					b.dirty.Reassign.add(only)
				case !b.index.Subscribed(o.Kind):
					b.reassign(o.Key)
				}
			}
		}},
		{Name: "credentials", start: func(b *dirtyBuilder) {
			for o := range b.changedObjects {
				if b.index.Subscribed(o.Kind) {
					b.addCredentials(o.Name)
				}
			}
		}},
		{Name: "facts", start: func(b *dirtyBuilder) {
			for _, f := range b.diff.Facts {
				b.dirty.Facts = append(b.dirty.Facts, f.Key())
				for w := range b.index.WantsOf(f.Key()) {
					b.reassign(w.Object)
				}
			}
		}},
	}
}

// dirtyBuilder collects the Dirty of a change. It follows aliases, routes, patterns and shared addresses.
type dirtyBuilder struct {
	index, last *Index
	diff        *snapshot.Diff
	rules       []InvalidationRule
	dirty       Dirty

	hosts    map[string]struct{}
	changed  map[string]struct{} // hosts whose services, endpoints, rules or routes changed
	queue    []string            // hosts of changed whose dependents are not yet added
	followed map[followed]struct{}
}

// followed is a VirtualService whose hosts a rule has added.
type followed struct {
	by string
	*VirtualService
}

// findDirty returns the difference from last and everything that depends on it, by some rules.
func (x *Index) findDirty(last *Index, rules []InvalidationRule) Dirty {
	b := &dirtyBuilder{
		index: x, last: last, diff: &x.Diff, rules: rules,
		hosts: map[string]struct{}{}, changed: map[string]struct{}{}, followed: map[followed]struct{}{},
	}
	for _, r := range rules {
		if r.start != nil {
			r.start(b)
		}
	}
	b.addDependents()
	b.addListeners()
	for _, r := range rules {
		if r.routes != nil {
			r.routes(b)
		}
	}
	clear(b.followed)
	b.addDependents()
	b.dirty.Hosts = slices.Sorted(maps.Keys(b.hosts))
	b.dirty.Compare = b.diff.Full || slices.ContainsFunc(b.diff.OldEndpoints, b.beyondAssignments)
	if b.dirty.Reassign.All {
		b.dirty.Reassign.Namespaces = nil
	}
	return b.dirty
}

// addDependents adds the dependents of changed hosts until there are no more.
func (b *dirtyBuilder) addDependents() {
	for len(b.queue) > 0 {
		host := b.queue[len(b.queue)-1]
		b.queue = b.queue[:len(b.queue)-1]
		for _, r := range b.rules {
			if r.follow != nil {
				r.follow(b, host)
			}
		}
	}
}

// addListeners adds the listeners of the services of dirty hosts, before and after the change.
func (b *dirtyBuilder) addListeners() {
	oldServices := map[string][]*registry.Service{} // services before the change, by host
	for _, sc := range b.diff.Services {
		if sc.Old != nil {
			oldServices[sc.Old.Host] = append(oldServices[sc.Old.Host], sc.Old)
		}
	}
	oldEndpoints := map[registry.ServiceKey]*snapshot.Endpoints{}
	for _, old := range b.diff.OldEndpoints {
		oldEndpoints[old.ServiceKey] = old.Endpoints
	}
	d, x := &b.dirty, b.index
	for h := range b.hosts {
		for svc := range x.ServicesByHost(h) {
			d.Listeners = appendListeners(d.Listeners, svc, x.Endpoints(svc.Key()), oldEndpoints[svc.Key()])
		}
		for _, svc := range oldServices[h] {
			d.Listeners = appendListeners(d.Listeners, svc, x.Endpoints(svc.Key()), oldEndpoints[svc.Key()], b.last.Endpoints(svc.Key()))
		}
	}
}

// changedServices calls yield for each changed service, before and after the change.
func (b *dirtyBuilder) changedServices(yield func(*registry.Service) bool) {
	for _, sc := range b.diff.Services {
		for _, svc := range []*registry.Service{sc.Old, sc.New} {
			if svc != nil && !yield(svc) {
				return
			}
		}
	}
}

// changedObjects calls yield for each changed object, before and after the change.
func (b *dirtyBuilder) changedObjects(yield func(*kinds.Object) bool) {
	for _, cc := range b.diff.Configs {
		for _, o := range []*kinds.Object{cc.Old, cc.New} {
			if o != nil && !yield(o) {
				return
			}
		}
	}
}

// addCredentials adds the names of Secrets and ConfigMaps.
func (b *dirtyBuilder) addCredentials(names ...string) {
	for _, name := range names {
		if i, found := slices.BinarySearch(b.dirty.Credentials, name); !found {
			b.dirty.Credentials = slices.Insert(b.dirty.Credentials, i, name)
		}
	}
}

// reassign adds the proxies whose workload may select a changed object, or an object whose fact changed. Their cohorts
// are resolved again.
func (b *dirtyBuilder) reassign(o kinds.Key) {
	switch {
	case o.Kind == kinds.VirtualService: // selected by source labels alone
	case o.Kind == kinds.Gateway, o.Namespace == b.index.RootNamespace(): // may be selected from every namespace
		b.dirty.Reassign.All = true
	default:
		b.dirty.Reassign.add(o.Namespace)
	}
}

func (b *dirtyBuilder) addHost(host string) { b.hosts[host] = struct{}{} }

// addChangedHost adds a host whose services, endpoints, rules or routes changed.
func (b *dirtyBuilder) addChangedHost(host string) {
	if _, ok := b.changed[host]; !ok {
		b.changed[host] = struct{}{}
		b.addHost(host)
		b.queue = append(b.queue, host)
	}
}

// firstTime reports whether a rule reaches a VirtualService for the first time.
func (b *dirtyBuilder) firstTime(rule string, v *VirtualService) bool {
	f := followed{rule, v}
	_, ok := b.followed[f]
	b.followed[f] = struct{}{}
	return !ok
}

// addAtAddress adds the hosts that share an address, because all of them decide which one is called by the address.
func (b *dirtyBuilder) addAtAddress(address string) {
	if b.index.HasHost(address) { // a host that is an address
		b.addHost(address)
	}
	for l := range b.index.locations.Where(withAddress(address)) {
		b.addHost(l.service.Host)
	}
}

// eachCovered calls add for a host and, if it is a pattern, for each service's host that it covers.
func (b *dirtyBuilder) eachCovered(host string, add func(string)) {
	add(host)
	if strings.HasPrefix(host, "*") {
		for svc := range b.index.EachService {
			if names.Covers(host, svc.Host) {
				add(svc.Host)
			}
		}
	}
}
