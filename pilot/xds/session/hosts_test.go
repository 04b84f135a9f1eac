package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// takeHosts takes virtual hosts by themselves: all of a response or nothing. Those whose route configuration is not
// there are dropped, and still count as had.
func (c *modelClient) takeHosts(r *wire.Response) {
	c.nonce[r.TypeURL] = r.Nonce
	if slices.ContainsFunc(r.Resources, func(x *envoy.Resource) bool { return x.Version == "bad" }) {
		c.send(r.TypeURL, nil, nil, r.Nonce, "a bad one is among them")
		return
	}
	for _, name := range r.Removed {
		c.isDivided(name)
		if _, ok := c.have[r.TypeURL][name]; !ok && !c.h.nacks {
			c.h.t.Fatalf("virtual host %s is removed and was not there", name)
		}
		delete(c.have[r.TypeURL], name)
		if _, ok := c.live[folder(name)][name]; ok && own(c.have[envoy.RouteType][folder(name)]) == "head" {
			c.h.t.Fatalf("virtual host %s is removed, which an Envoy does not heed", name)
		}
	}
	for i, x := range r.Resources {
		c.isDivided(x.Name)
		c.have[r.TypeURL][x.Name] = sentVersion(r, i)
		if own(sentVersion(r, i)) == tombstone {
			delete(c.live[folder(x.Name)], x.Name)
			continue
		}
		if route := folder(x.Name); own(c.have[envoy.RouteType][route]) == "head" {
			if c.live[route] == nil {
				c.live[route] = map[string]string{}
			}
			c.live[route][x.Name] = own(sentVersion(r, i))
		}
	}
	c.send(r.TypeURL, nil, nil, r.Nonce, "")
	c.references()
}

// isDivided fails the test for a virtual host of a route configuration that the client has in one piece: an Envoy would
// fall back to the virtual hosts that came by themselves.
func (c *modelClient) isDivided(host string) {
	if route := folder(host); strings.Contains(own(c.have[envoy.RouteType][route]), "+") {
		c.h.t.Fatalf("%v is told of virtual host %s, and has %s as a whole", c, host, route)
	}
}

func folder(name string) string { return name[:strings.LastIndexByte(name, '/')] }

// checkHosts looks at the virtual hosts of a route configuration, and returns the version that it should have.
func (c *modelClient) checkHosts(route, version string) string {
	want := map[string]string{}
	for name, v := range c.h.versions["vhds"] {
		if folder(name) == route && version != "none" {
			want[name] = v
		}
	}
	whole := version
	for _, name := range slices.Sorted(maps.Keys(want)) {
		whole += "+" + strings.TrimPrefix(name, route+"/") + want[name]
	}
	if own(c.have[envoy.RouteType][route]) != "head" {
		return whole
	}
	for name, v := range want {
		if v != "bad" && c.live[route][name] != v {
			c.h.t.Errorf("virtual host %s is %q, want %q", name, c.live[route][name], v)
		}
	}
	for name := range c.live[route] {
		if _, ok := want[name]; !ok {
			c.h.t.Errorf("virtual host %s is there and should not be", name)
		}
	}
	return "head"
}
