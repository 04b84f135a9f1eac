package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// touched is a resource that a revision changed.
type touched struct{ short, name string }

// record keeps the world that was published, and what differs from the one before.
func (h *history) record() {
	world := map[string]map[string]string{}
	for short, all := range h.versions {
		world[short] = maps.Clone(all)
	}
	var list []touched
	last := map[string]map[string]string{}
	if n := len(h.worlds); n > 0 {
		last = h.worlds[n-1]
	}
	for _, short := range []string{"cds", "eds", "lds", "rds", "vhds", "sds"} {
		names := maps.Clone(last[short])
		if names == nil {
			names = map[string]string{}
		}
		maps.Copy(names, world[short])
		for name := range names {
			was, had := last[short][name]
			if is, has := world[short][name]; had != has || was != is {
				list = append(list, touched{short, name})
			}
		}
	}
	h.worlds, h.touched = append(h.worlds, world), append(h.touched, list)
}

// recent is the number of revisions that are compared at each step.
const recent = 12

// checkDebts compares what the session says to be in force with what the client has: of a revision that the client does
// not owe, it has each resource that the revision changed as of that revision or a later one.
func (c *modelClient) checkDebts() {
	newest := len(c.h.worlds)
	for n := max(1, newest-recent); n <= newest; n++ {
		revision := uint64(n) //nolint:gosec // not negative
		if c.waiting != nil && c.waiting.First <= revision && revision <= c.waiting.Snapshot.Revision ||
			c.session.Debts().Owed(revision, false).Owes {
			continue
		}
		for _, x := range c.h.touched[n-1] {
			if !c.hasSince(x, n) {
				c.h.t.Fatalf("%v: revision %d is said to be in force: %s %s is %q, and virtual hosts %v", c, n, x.short, x.name,
					c.have[xdstest.LongType(x.short)][x.name], c.live)
			}
		}
	}
	if c.waiting != nil {
		return
	}
	for x := range c.refused {
		short := envoy.ShortType(x.typeURL)
		if short == "cds" || short == "lds" || short == "sds" {
			is, there := c.h.versions[short][x.name]
			if there && is == x.version && !c.session.Debts().Owed(uint64(newest), true).Owes { //nolint:gosec // not negative
				c.h.t.Fatalf("%v: it rejects %s %s=%s, and everything is said to be in force", c, short, x.name, is)
			}
		}
	}
}

// hasSince reports whether the client has a resource as of a revision or a later one, if it has asked for it before.
func (c *modelClient) hasSince(x touched, n int) bool {
	t := xdstest.LongType(x.short)
	name := x.name
	if x.short == "vhds" {
		t, name = envoy.RouteType, folder(x.name)
	}
	first := !c.resumed && uint64(n) <= c.first[t] //nolint:gosec // not negative
	if !c.resumed && !c.got[t] || first && !c.rejects[t] {
		return true // it has no configuration yet, or it was sent the newest at first
	}
	has, ok := c.have[t][name]
	has = own(has)
	if !envoy.TypeOf(t).Complete {
		if !c.subs[t][name] || c.fresh[t+name] || n <= c.since[t+name] || c.retaken[name] {
			return true
		}
		if !ok && t == envoy.EndpointType {
			return true // the client has just asked for it
		}
	}
	if x.short == "vhds" && slices.ContainsFunc(c.h.worlds[n-1:], func(world map[string]map[string]string) bool {
		return world["rds"][name] == ""
	}) {
		return true // its route configuration was removed, and a later revision brings it back
	}
	if x.short == "vhds" && has == "head" && len(c.live[name]) == 0 && !c.got[envoy.VirtualHostType] {
		return true // it has no virtual host yet, and will be sent the newest
	}
	if t == envoy.EndpointType {
		has, _, _ = strings.Cut(has, ".")
		if _, there := c.h.worlds[n-1]["cds"][name]; !there {
			return true // its cluster was removed before
		}
	}
	starts := !c.resumed && !c.got[envoy.EndpointType] // no cluster serves yet
	if x.short == "cds" && ok && !c.h.strict && c.warming[name] && !first && !starts {
		has = own(c.active[name]) // the version that serves
		ok = has != ""
	}
	for m := n; m <= len(c.h.worlds); m++ {
		world := c.h.worlds[m-1]
		is, there := world[strings.Replace(x.short, "vhds", "rds", 1)][name]
		if !there && envoy.TypeOf(t).Total {
			is, there = "none", true
		}
		if t == envoy.RouteType {
			if has == "head" {
				v, must := world["vhds"][x.name]
				if live, serves := c.live[name][x.name]; x.short == "rds" || serves == must && live == v {
					return true
				}
				continue
			}
			for _, host := range slices.Sorted(maps.Keys(world["vhds"])) {
				if folder(host) == name && is != "none" {
					is += "+" + strings.TrimPrefix(host, name+"/") + world["vhds"][host]
				}
			}
		}
		if !there && !c.delta && !envoy.TypeOf(t).Complete {
			return true // it cannot be told
		}
		if there == ok && is == has {
			return true
		}
	}
	return false
}

// checkPaid checks that the client owes nothing once everything has arrived.
func (c *modelClient) checkPaid() {
	if open := c.session.Debts().Open(nil); len(open) > 0 {
		c.h.t.Errorf("%v: everything has arrived, and it owes %+v", c, open)
	}
}
