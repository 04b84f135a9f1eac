package bootstrap

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// response is one of either protocol.
type response struct {
	typeURL, nonce, version string
	names                   []string
	resources               []*held
	removed                 []string
}

func (c *modelEnvoy) decode(m proto.Message) (response, error) {
	var out response
	add := func(name, version string, a *anypb.Any) error {
		x, own, err := c.look(a)
		if err != nil {
			return err
		}
		x.version = version
		if version != "" && !c.h.sameVersion(a.TypeUrl, cmp.Or(name, own), version, x.value) {
			c.fail("%s %s has two contents in version %s", short(a.TypeUrl), name, version)
		}
		out.names, out.resources = append(out.names, cmp.Or(name, own)), append(out.resources, x)
		return nil
	}
	switch m := m.(type) {
	case *discoveryv3.DiscoveryResponse:
		out.typeURL, out.nonce, out.version = m.TypeUrl, m.Nonce, m.VersionInfo
		for _, a := range m.Resources {
			if err := add("", "", a); err != nil {
				return out, err
			}
		}
	case *discoveryv3.DeltaDiscoveryResponse:
		out.typeURL, out.nonce, out.removed = m.TypeUrl, m.Nonce, m.RemovedResources
		for _, x := range m.Resources {
			if err := add(x.Name, x.Version, x.Resource); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// look returns a resource as this client sees it.
func (c *modelEnvoy) look(a *anypb.Any) (*held, string, error) {
	seen, err := c.h.look(a)
	if err != nil {
		return nil, "", err
	}
	x := &held{content: seen}
	x.bad = c.rejects(seen)
	return x, seen.name, nil
}

func (c *modelEnvoy) isBad(hash uint64) bool { return (hash^c.salt)*0x9e3779b97f4a7c15>>32%12 == 0 }

// take takes one response. Of clusters and listeners what is bad is not applied, and the rest is; of what is asked for
// by name what comes before the bad one, or nothing.
func (c *modelEnvoy) take(m proto.Message) error {
	r, err := c.decode(m)
	if err != nil {
		return err
	}
	c.note("is sent %s %s: %v -%v", short(r.typeURL), r.nonce, r.names, r.removed)
	c.h.responses.Add(1)
	c.nonce[r.typeURL] = r.nonce
	bad := slices.IndexFunc(r.resources, func(x *held) bool { return x.bad })
	complete := r.typeURL == envoy.ClusterType || r.typeURL == envoy.ListenerType
	if r.typeURL == envoy.VirtualHostType && bad >= 0 || !complete && bad >= 0 && chance(c.r, 2) {
		return c.reply(r.typeURL, "a bad one is among them")
	}
	early := chance(c.r, 2)
	if early {
		if err := c.verdict(r, bad); err != nil {
			return err
		}
	}
	c.worthwhile(r, bad)
	c.apply(r, complete)
	if err := c.follow(r.typeURL); err != nil {
		return err
	}
	c.references()
	if early {
		return nil
	}
	return c.verdict(r, bad)
}

func (c *modelEnvoy) verdict(r response, bad int) error {
	if bad >= 0 {
		return c.reply(r.typeURL, "a bad one is among them")
	}
	c.version[r.typeURL] = r.version
	return c.reply(r.typeURL, "")
}

// worthwhile fails where a response brings nothing new and nothing that was asked for.
func (c *modelEnvoy) worthwhile(r response, bad int) {
	// While a client resumes, clusters that went and came back may come though it never let go of them.
	have, news := c.have[r.typeURL], len(r.removed) > 0 || !c.answered[r.typeURL] ||
		c.rejecting || bad >= 0 || r.typeURL == envoy.ClusterType && c.resumed
	c.answered[r.typeURL] = true
	present := map[string]bool{}
	for i, name := range r.names {
		if present[name] {
			c.fail("%s %s comes twice in one response", short(r.typeURL), name)
		}
		present[name] = true
		had := have[name]
		if r.typeURL == envoy.VirtualHostType && c.live[folder(name)][name] == nil && !r.resources[i].vacant {
			had = nil
		}
		news = news || had == nil || had.value != r.resources[i].value || c.owed[r.typeURL][name] > 0 || c.left[r.typeURL+name]
		if c.owed[r.typeURL][name] > 0 {
			c.owed[r.typeURL][name]--
		}
	}
	if c.mode == whole && c.subs[r.typeURL] == nil {
		for name := range have {
			news = news || !present[name]
		}
	}
	if !news {
		c.fail("%s %s brings nothing that it had not: %v", short(r.typeURL), r.nonce, r.names)
	}
	for _, name := range r.removed {
		if have[name] == nil && !c.rejecting {
			c.fail("%s %s is removed, which it had not", short(r.typeURL), name)
		}
		if slices.Contains(r.names, name) {
			c.fail("%s %s comes and goes in one response", short(r.typeURL), name)
		}
	}
}

func (c *modelEnvoy) apply(r response, complete bool) {
	have := c.have[r.typeURL]
	present := map[string]bool{}
	for i, name := range r.names {
		x := r.resources[i]
		present[name] = true
		if subs := c.subs[r.typeURL]; subs != nil && !subs[name] {
			continue // it was on its way when the client let go of it
		}
		if x.bad {
			if !complete {
				break
			}
			continue
		}
		had := have[name]
		have[name] = x
		switch r.typeURL {
		case envoy.ClusterType:
			if len(x.refers) > 0 {
				c.owe(envoy.EndpointType, x.refers[0]) // also of one that only comes again: its assignment follows
				if had == nil || had.value != x.value {
					c.warming[name] = true
				}
			}
		case envoy.EndpointType:
			delete(c.warming, name)
			c.active[name] = c.have[envoy.ClusterType][name]
		case envoy.RouteType:
			if !x.heads {
				delete(c.live, name)
				break
			}
			if c.live[name] == nil {
				c.live[name] = map[string]*held{}
			}
			for h := range c.have[envoy.VirtualHostType] {
				if folder(h) == name {
					c.owe(envoy.VirtualHostType, h)
				}
			}
		case envoy.VirtualHostType:
			c.host(name, x)
		}
	}
	for _, name := range r.removed {
		if _, ok := c.live[folder(name)][name]; ok && r.typeURL == envoy.VirtualHostType {
			c.fail("virtual host %s is removed while it serves, which an Envoy does not heed", name)
		}
		delete(have, name)
	}
	if c.mode == whole && complete {
		maps.DeleteFunc(have, func(name string, _ *held) bool { return !present[name] })
	}
	if r.typeURL == envoy.ClusterType {
		gone := func(name string) bool { return have[name] == nil || len(have[name].refers) == 0 }
		maps.DeleteFunc(c.warming, func(name string, _ bool) bool { return gone(name) })
		maps.DeleteFunc(c.active, func(name string, _ *held) bool { return gone(name) })
	}
}

// host takes a virtual host by itself: it is dropped without its route configuration.
func (c *modelEnvoy) host(name string, x *held) {
	live := c.live[folder(name)]
	switch rc := c.have[envoy.RouteType][folder(name)]; {
	case x.vacant:
		delete(live, name)
	case rc != nil && rc.heads && live != nil:
		live[name] = x
	default:
		c.note("drops virtual host %s", name)
	}
}

func folder(name string) string {
	return name[:max(0, strings.LastIndexByte(name, '/'))]
}

// follow subscribes to what clusters and listeners name, and to what comes after them.
func (c *modelEnvoy) follow(typeURL string) error {
	switch typeURL {
	case envoy.ClusterType:
		if err := c.narrow(envoy.EndpointType, envoy.ClusterType); err != nil {
			return err
		}
	case envoy.ListenerType:
		if err := c.retake(); err != nil {
			return err
		}
		return c.narrow(envoy.RouteType, envoy.ListenerType)
	case envoy.RouteType:
		for _, x := range c.have[envoy.RouteType] {
			if x.heads && !c.asked[envoy.VirtualHostType] {
				return c.subscribe(envoy.VirtualHostType, nil, nil)
			}
		}
	}
	if !c.asked[envoy.ListenerType] && (len(c.warming) == 0 || c.salt != 0 || chance(c.r, 4)) {
		return c.subscribe(envoy.ListenerType, nil, nil)
	}
	return nil
}

// retake lets go of a route configuration and takes it back at once, as when the last listener that names it is
// replaced.
func (c *modelEnvoy) retake() error {
	routes := slices.Sorted(maps.Keys(c.subs[envoy.RouteType]))
	if c.mode == whole || len(routes) == 0 || !chance(c.r, 4) {
		return nil
	}
	name := one(c.r, routes...)
	delete(c.have[envoy.RouteType], name)
	delete(c.live, name)
	if err := c.subscribe(envoy.RouteType, nil, []string{name}); err != nil {
		return err
	}
	for host := range c.have[envoy.VirtualHostType] {
		if folder(host) == name {
			c.left[envoy.VirtualHostType+host] = true
		}
	}
	return c.subscribe(envoy.RouteType, []string{name}, nil)
}

// narrow has the client subscribed to exactly what those of another type refer to.
func (c *modelEnvoy) narrow(typeURL, from string) error {
	subs, wants := c.subs[typeURL], map[string]bool{}
	for _, x := range c.have[from] {
		for _, name := range x.refers {
			wants[name] = true
		}
	}
	var add, remove []string
	for name := range wants {
		if !subs[name] {
			subs[name] = true
			add = append(add, name)
		}
	}
	for name := range subs {
		if !wants[name] {
			remove = append(remove, name)
			delete(subs, name)
			delete(c.have[typeURL], name)
			if typeURL == envoy.RouteType {
				delete(c.live, name)
			}
		}
	}
	if len(add)+len(remove) == 0 {
		return nil
	}
	slices.Sort(add)
	slices.Sort(remove)
	return c.subscribe(typeURL, add, remove)
}

// references holds that what it has names no cluster that it has not, but where there is none in the world to which
// that belongs.
func (c *modelEnvoy) references() {
	if c.rejecting || c.resumed && c.mode == whole { // then the server does not know what it has, and cannot keep order for it
		return
	}
	look := func(typeURL, name string, x *held) {
		for _, cluster := range x.clusters {
			if c.have[envoy.ClusterType][cluster] == nil && !c.h.dangles(c, typeURL, name, cluster) {
				c.fail("%s %s names cluster %s, which it has not", short(typeURL), name, cluster)
			}
		}
	}
	for _, t := range []string{envoy.ListenerType, envoy.RouteType} {
		for name, x := range c.have[t] {
			look(t, name, x)
		}
	}
	for _, hosts := range c.live {
		for name, x := range hosts {
			look(envoy.VirtualHostType, name, x)
		}
	}
}

func short(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '.')+1:] }
