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

	start  func(c *closure)              // runs first: adds what the change names itself
	follow func(c *closure, host string) // adds what depends on a host whose services, endpoints, rules or routes changed
	routes func(c *closure)              // runs last: what it adds makes no listener dirty
}

// Rules returns the rules of invalidation, all that there are. Those about tables stand beside them. What a change makes
// dirty is decided here alone.
func Rules() []Rule {
	return slices.Concat(meshInvalidation(), serviceInvalidation(), destinationRuleInvalidation(), virtualServiceInvalidation())
}

// meshInvalidation returns what the mesh configuration, workloads and objects that select workloads make dirty.
func meshInvalidation() []Rule {
	return []Rule{
		{Name: "mesh", start: func(c *closure) {
			c.dirty.All = c.dirty.All || c.diff.Global
			c.dirty.Reassign.All = c.dirty.Reassign.All || c.diff.Global
		}},
		{Name: "workloads", start: func(c *closure) {
			c.dirty.Reassign.All = c.dirty.Reassign.All || len(c.diff.Workloads) > 0
		}},
		{Name: "policies of whom proxies call", start: func(c *closure) {
			for o := range c.configs {
				c.dirty.All = c.dirty.All || !structural(o.Kind) && c.index.Reach(o.Kind) == snapshot.Everywhere
			}
		}},
		{Name: "selecting objects", start: func(c *closure) {
			for o := range c.configs {
				c.reassign(o)
			}
		}},
	}
}

// closure collects what a change makes dirty. It follows aliases, routes, patterns and shared addresses.
type closure struct {
	index, last *Index
	diff        *snapshot.Diff
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

// findDirty returns what differs from last and what depends on it, by some rules.
func (x *Index) findDirty(last *Index, rules []Rule) Dirty {
	c := &closure{
		index: x, last: last, diff: &x.Diff, rules: rules,
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
	c.dirty.Compare = c.diff.Full || slices.ContainsFunc(c.diff.OldEndpoints, c.beyondAssignments)
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

// configs calls yield for each changed object, as it was and as it is.
func (c *closure) configs(yield func(*kinds.Object) bool) {
	for _, cc := range c.diff.Configs {
		for _, o := range []*kinds.Object{cc.Old, cc.New} {
			if o != nil && !yield(o) {
				return
			}
		}
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

// addAtAddress adds the hosts that share an address. Which of them is called by the address depends on all of them.
func (c *closure) addAtAddress(address string) {
	if c.index.HasHost(address) { // a host that is an address
		c.add(address)
	}
	for l := range c.index.locations.Where(withAddress(address)) {
		c.add(l.service.Host)
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
