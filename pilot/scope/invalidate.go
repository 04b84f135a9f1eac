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

// Rule is one way in which a change makes resources, or the cohorts of proxies, dirty. Each hook may be nil.
type Rule struct {
	Name string

	start  func(c *closure)              // adds what the change names itself
	follow func(c *closure, host string) // adds what depends on a host whose services, endpoints, rules or routes changed
	routes func(c *closure)              // adds what the change names itself, where listeners are not affected
}

// Rules returns the rules of invalidation, all that there are. What a change makes dirty is decided here alone.
func Rules() []Rule {
	return []Rule{
		{Name: "mesh", start: func(c *closure) {
			c.dirty.All = c.dirty.All || c.diff.Global
			c.dirty.Reassign.All = c.dirty.Reassign.All || c.diff.Global
		}},
		{Name: "policies of whom proxies call", start: func(c *closure) {
			for o := range c.configs(nil) {
				c.dirty.All = c.dirty.All || !structural(o.Kind) && c.index.Reach(o.Kind) == snapshot.Everywhere
			}
		}},
		{Name: "services", start: func(c *closure) {
			for svc := range c.services {
				c.addChanged(svc.Host)
			}
		}},
		{Name: "endpoints", start: func(c *closure) {
			for _, b := range c.diff.OldEndpoints {
				c.dirty.Endpoints = append(c.dirty.Endpoints, b.Host)
			}
		}},
		{Name: "endpoint summaries", start: func(c *closure) {
			for _, b := range c.diff.OldEndpoints {
				if b.EndpointSummary != c.index.EndpointSummary(b.ServiceKey) {
					c.addChanged(b.Host)
				}
			}
		}},
		{Name: "embedded endpoints", start: func(c *closure) {
			for _, b := range c.diff.OldEndpoints {
				if c.index.embedsEndpoints(b.ServiceKey) {
					c.addChanged(b.Host)
				}
			}
		}},
		{Name: "destination rules", start: func(c *closure) {
			for o := range c.configs(kinds.DestinationRule) {
				c.eachCovered(c.index.rule(o).host, c.addChanged)
			}
		}},
		{Name: "shared addresses", start: func(c *closure) {
			for svc := range c.services {
				c.addSharingAddress(svc)
			}
		}, follow: func(c *closure, host string) {
			for svc := range c.index.ServicesByHost(host) {
				c.addSharingAddress(svc)
			}
		}},
		{Name: "aliases", follow: func(c *closure, host string) {
			for a := range c.index.aliases.Where(func(a alias) int { return strings.Compare(a.target, host) }) {
				c.addChanged(a.service.Host)
			}
		}},
		{Name: "alias targets", start: func(c *closure) {
			for svc := range c.services {
				c.addAliasTarget(svc)
			}
		}, follow: func(c *closure, host string) {
			for svc := range c.index.ServicesByHost(host) {
				c.addAliasTarget(svc)
			}
		}},
		{Name: "imports by routes", start: func(c *closure) { // a Sidecar imports the services that VirtualServices route to
			for v := range c.virtualServices(true) {
				for _, h := range v.DestinationHosts {
					if c.index.importAffectsOthers(h) {
						c.addChanged(h)
					}
				}
			}
		}},
		{Name: "routes to a host", follow: func(c *closure, host string) {
			for l := range c.index.meshDestinations.Where(withName(host)) {
				if c.first("destination", l.VirtualService) {
					for _, h := range l.Hosts {
						c.eachCovered(h, c.add)
					}
				}
			}
		}},
		// The virtual hosts of a VirtualService that have no service depend on the services that it routes.
		{Name: "hosts without a service", follow: func(c *closure, host string) {
			for pattern := range c.index.Patterns(host) {
				for l := range c.index.meshHosts.Where(withName(pattern)) {
					if c.first("host", l.VirtualService) {
						for _, h := range l.Hosts {
							c.add(h)
						}
					}
				}
			}
		}},
		// The hosts of a VirtualService count as changed, because its routes also belong to their aliases.
		{Name: "routes", routes: func(c *closure) {
			for v := range c.virtualServices(true) {
				for _, h := range v.Hosts {
					c.eachCovered(h, c.addChanged)
				}
			}
		}},
		{Name: "route destinations", routes: func(c *closure) {
			for v := range c.virtualServices(true) {
				for _, h := range v.DestinationHosts {
					c.add(h)
				}
			}
		}},
		{Name: "gateway routes", routes: func(c *closure) {
			for v := range c.virtualServices(false) {
				for _, h := range v.Hosts {
					c.add(h)
				}
			}
		}},
		{Name: "workloads", start: func(c *closure) {
			c.dirty.Reassign.All = c.dirty.Reassign.All || len(c.diff.Workloads) > 0
		}},
		{Name: "locality", start: func(c *closure) {
			x, last := c.index, c.last
			c.dirty.Reassign.All = c.dirty.Reassign.All || x.HasNodeLocal() != last.HasNodeLocal() || x.HasTrafficDistribution() != last.HasTrafficDistribution()
		}},
		{Name: "selecting objects", start: func(c *closure) {
			for o := range c.configs(nil) {
				c.reassign(o)
			}
		}},
		// A workload reads the rules of the services that it serves. By their addresses it serves other namespaces' too.
		{Name: "rules of services found by address", start: func(c *closure) {
			for o := range c.configs(kinds.DestinationRule) {
				c.eachCovered(c.index.rule(o).host, func(host string) {
					for svc := range c.index.ServicesByHost(host) {
						c.dirty.Reassign.All = c.dirty.Reassign.All || servedByAddress(svc)
					}
				})
			}
		}},
		{Name: "source labels", start: func(c *closure) {
			for _, v := range c.virtual {
				c.dirty.Reassign.All = c.dirty.Reassign.All || v.old.hasSourceLabels() || v.new.hasSourceLabels()
			}
		}},
		{Name: "workloads found by address", start: func(c *closure) {
			for _, b := range c.diff.OldEndpoints {
				c.dirty.Reassign.All = c.dirty.Reassign.All || servedByAddress(c.index.Service(b.ServiceKey))
			}
			for svc := range c.services {
				c.dirty.Reassign.All = c.dirty.Reassign.All || servedByAddress(svc)
			}
		}},
		{Name: "workloads that serve", start: func(c *closure) { // by a selector, in the service's own namespace
			for svc := range c.services {
				c.dirty.Reassign.add(svc.Namespace)
			}
		}},
	}
}

// reassign has the cohorts resolved anew that an object may be selected for.
func (c *closure) reassign(o *kinds.Object) {
	switch {
	case o.Kind == kinds.VirtualService: // by source labels alone
	case o.Kind == kinds.Gateway, o.Namespace == c.index.RootNamespace(): // selected from every namespace
		c.dirty.Reassign.All = true
	default:
		c.dirty.Reassign.add(o.Namespace)
	}
}

// closure collects what a change makes dirty. It follows aliases, routes, patterns and shared addresses.
type closure struct {
	index, last *Index
	diff        *snapshot.Diff
	virtual     []virtualChange
	rules       []Rule
	dirty       Dirty

	hosts    map[string]struct{}
	changed  map[string]struct{} // the hosts whose services, endpoints, rules or routes changed
	queue    []string            // the hosts of changed whose dependents are still to be added
	followed map[followed]struct{}
}

// followed is a VirtualService whose hosts a rule has added.
type followed struct {
	by string
	*VirtualService
}

// findDirty returns what the Snapshot's Diff and changed VirtualServices make dirty, by some rules.
func (x *Index) findDirty(last *Index, virtual []virtualChange, rules []Rule) Dirty {
	c := &closure{
		index: x, last: last, diff: &x.Diff, virtual: virtual, rules: rules,
		hosts: map[string]struct{}{}, changed: map[string]struct{}{}, followed: map[followed]struct{}{},
	}
	for _, r := range rules {
		if r.start != nil {
			r.start(c)
		}
	}
	c.run()
	c.addListeners()
	for _, r := range rules {
		if r.routes != nil {
			r.routes(c)
		}
	}
	clear(c.followed)
	c.run()
	c.dirty.Hosts = slices.Sorted(maps.Keys(c.hosts))
	if c.dirty.Reassign.All {
		c.dirty.Reassign.Namespaces = nil
	}
	return c.dirty
}

// run adds what depends on changed hosts until there is no more.
func (c *closure) run() {
	for len(c.queue) > 0 {
		host := c.queue[len(c.queue)-1]
		c.queue = c.queue[:len(c.queue)-1]
		for _, r := range c.rules {
			if r.follow != nil {
				r.follow(c, host)
			}
		}
	}
}

// addListeners adds the listeners of the services of dirty hosts, before and after the change.
func (c *closure) addListeners() {
	oldServices := map[string][]*registry.Service{} // by host
	for _, sc := range c.diff.Services {
		if sc.Old != nil {
			oldServices[sc.Old.Host] = append(oldServices[sc.Old.Host], sc.Old)
		}
	}
	oldEndpoints := map[registry.ServiceKey]*snapshot.Endpoints{}
	for _, b := range c.diff.OldEndpoints {
		oldEndpoints[b.ServiceKey] = b.Endpoints
	}
	d, x := &c.dirty, c.index
	for h := range c.hosts {
		for svc := range x.ServicesByHost(h) {
			d.Listeners = appendListeners(d.Listeners, svc, x.Endpoints(svc.Key()), oldEndpoints[svc.Key()])
		}
		for _, svc := range oldServices[h] {
			d.Listeners = appendListeners(d.Listeners, svc, x.Endpoints(svc.Key()), oldEndpoints[svc.Key()], c.last.Endpoints(svc.Key()))
		}
	}
}

// services calls yield for each changed service, as it was and as it is.
func (c *closure) services(yield func(*registry.Service) bool) {
	for _, sc := range c.diff.Services {
		for _, svc := range []*registry.Service{sc.Old, sc.New} {
			if svc != nil && !yield(svc) {
				return
			}
		}
	}
}

// configs returns the changed objects of a kind, nil for every kind, as they were and as they are.
func (c *closure) configs(kind *kinds.Kind) func(yield func(*kinds.Object) bool) {
	return func(yield func(*kinds.Object) bool) {
		for _, cc := range c.diff.Configs {
			for _, o := range []*kinds.Object{cc.Old, cc.New} {
				if o != nil && (kind == nil || o.Kind == kind) && !yield(o) {
					return
				}
			}
		}
	}
}

// virtualServices returns the changed VirtualServices of sidecars, or those of Gateways alone, as they were and as they
// are.
func (c *closure) virtualServices(sidecars bool) func(yield func(*VirtualService) bool) {
	return func(yield func(*VirtualService) bool) {
		for _, vc := range c.virtual {
			for _, v := range []*VirtualService{vc.old, vc.new} {
				if v != nil && slices.Contains(v.Gateways, "mesh") == sidecars && !yield(v) {
					return
				}
			}
		}
	}
}

func (c *closure) add(host string) { c.hosts[host] = struct{}{} }

// addChanged adds a host whose services, endpoints, rules or routes changed.
func (c *closure) addChanged(host string) {
	if _, ok := c.changed[host]; !ok {
		c.changed[host] = struct{}{}
		c.add(host)
		c.queue = append(c.queue, host)
	}
}

// first reports whether a rule comes to a VirtualService for the first time.
func (c *closure) first(rule string, v *VirtualService) bool {
	f := followed{rule, v}
	_, ok := c.followed[f]
	c.followed[f] = struct{}{}
	return !ok
}

// addSharingAddress adds the hosts that share an address with a service. Which of them is called by the address depends
// on all of them.
func (c *closure) addSharingAddress(svc *registry.Service) {
	for in := range variants(svc) {
		for _, list := range [][]string{in.Addresses, in.AutoAddress} {
			for _, a := range list {
				if c.index.HasHost(a) { // a host that is an address
					c.add(a)
				}
				for l := range c.index.locations.Where(withAddress(a)) {
					c.add(l.service.Host)
				}
			}
		}
	}
}

// addAliasTarget adds the host that an alias stands for: its virtual hosts include the alias' name.
func (c *closure) addAliasTarget(svc *registry.Service) {
	if svc.Resolution == registry.Alias {
		c.addChanged(svc.ExternalName)
	}
}

// eachCovered calls add for a host and, if it is a pattern, for each service's host that it covers.
func (c *closure) eachCovered(host string, add func(string)) {
	add(host)
	if strings.HasPrefix(host, "*") {
		for svc := range c.index.EachService {
			if names.Covers(host, svc.Host) {
				add(svc.Host)
			}
		}
	}
}
