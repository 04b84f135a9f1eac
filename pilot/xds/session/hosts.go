package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// Virtual hosts on demand (VHDS). A client that supports them subscribes to route configurations by name and, when one
// refers to VHDS, to all virtual hosts. It silently drops a virtual host without a route configuration, and all virtual
// hosts of a route configuration that it unsubscribes from. So virtual hosts follow their route configuration on the
// stream each time that it is sent.

// splitHosts returns route configurations without their virtual hosts, and marks the virtual hosts for comparison if
// they have changed.
//
// A client that resumes with whole route configurations, from a server that sent them, is sent whole ones again. Moving
// virtual hosts out of a route configuration would take two steps, and requests in between would find none.
//
// A client with too many tombstones is also sent whole route configurations, which free it of them in one step.
func (s *Session) splitHosts(w *watch, whole envoy.Union) envoy.Union {
	if w.initial && s.hasWhole(w.held, whole) || s.tombstones > s.limits.Tombstones {
		s.divided, w.hosts = false, nil
		s.compareHosts() // finds none to send
		return whole
	}
	heads, hosts := whole.Shared.Divided()
	if v := s.find(envoy.VirtualHostType); v != nil {
		v.compare = v.compare || !v.idle() && (hosts != w.hosts || v.initial)
	}
	w.hosts = hosts
	return envoy.Union{Shared: heads, Own: whole.Own, Omit: whole.Omit}
}

// hasWhole reports whether the client resumed with a route configuration that includes its virtual hosts.
func (s *Session) hasWhole(had, whole envoy.Union) bool {
	for r := range had.All {
		if is := whole.Get(r.Name); is != nil && is.Head != nil && !envoy.IsHeadVersion(r.Version) && r.Version != is.Header.Version {
			return true
		}
	}
	return false
}

// Generations. A client that unsubscribes from a route configuration and subscribes again drops its virtual hosts, but
// still has their versions when it resumes. So a version has a generation: the number of times that the client was sent
// the route configuration before. A virtual host of another generation than its route configuration is gone.

// versionWithGeneration returns the version in responses of a route configuration or a virtual host.
func (s *Session) versionWithGeneration(w *watch, r *envoy.Resource) string {
	route := r.Name
	if w.kind.Part {
		route, _ = routeOf(r.Name)
	}
	return wire.WithGeneration(r.Version, s.generations[route])
}

// initialHeads records the generations of the subscribed route configurations with which a client resumes, and returns
// their versions without generations.
func (s *Session) initialHeads(names *envoy.Names, v wire.InitialVersions) wire.InitialVersions {
	s.generations = map[string]uint32{}
	had := v.Union()
	var made []*envoy.Resource
	for name := range names.Each() {
		r := had.Get(name)
		if r == nil {
			continue
		}
		own, n := wire.SplitGeneration(r.Version)
		s.generations[name] = n
		if s.hasGenerations = s.hasGenerations || n > 0; n > 0 && s.find(envoy.VirtualHostType) != nil {
			s.resendHosts(name) // the client named its virtual hosts first, and they were accepted
		}
		made = append(made, &envoy.Resource{Name: name, Version: own})
	}
	if !s.hasGenerations {
		return v
	}
	return wire.InitialVersions{Own: made}
}

// initialHosts returns the virtual hosts that a client resumes with, without generations. It drops the version of a
// virtual host whose generation differs from its route configuration's.
func (s *Session) initialHosts(v wire.InitialVersions) wire.InitialVersions {
	if !s.hasGenerations && !v.HasGenerations() {
		return v
	}
	var made []*envoy.Resource
	for r := range v.Union().All {
		route, _ := routeOf(r.Name)
		own, n := wire.SplitGeneration(r.Version)
		if n != s.generations[route] {
			own = "" // no resource has this version
		}
		made = append(made, &envoy.Resource{Name: r.Name, Version: own})
	}
	return wire.InitialVersions{Own: made}
}

// nextGeneration counts a route configuration that is sent. If a resuming client does not name the route configuration,
// it may have had any number of generations.
func (s *Session) nextGeneration(route string) {
	n, resend := s.generations[route]
	switch {
	case resend:
		n++
	case s.resumed:
		n = s.firstGeneration
	}
	lists.Put(&s.generations, route, n)
	s.hasGenerations = s.hasGenerations || n > 0
}

// routeOf returns the route configuration in a virtual host's name.
func routeOf(host string) (route string, ok bool) {
	i := strings.LastIndexByte(host, '/')
	return host[:max(i, 0)], i >= 0
}

// markHeadSent records that a route configuration is sent without its virtual hosts. They follow, even if the client
// had them before.
func (s *Session) markHeadSent(route string) {
	s.nextGeneration(route)
	s.resendHosts(route)
}

// resendHosts marks the virtual hosts of a route configuration to be sent unconditionally.
func (s *Session) resendHosts(route string) {
	lists.Put(&s.routesWithoutHosts, route, struct{}{})
	s.compareHosts()
}

// dropHosts drops the virtual hosts of a client without route configurations.
func (s *Session) dropHosts(routes *watch) {
	routes.hosts = nil
	s.compareHosts()
}

// compareHosts marks the virtual hosts for comparison, if the client subscribes to any.
func (s *Session) compareHosts() {
	if v := s.find(envoy.VirtualHostType); v != nil {
		v.compare = v.compare || !v.idle()
	}
}

// hostsToResend adds the virtual hosts of the route configurations that were sent to resend.
func (s *Session) hostsToResend(target, held envoy.Union, resend map[string]struct{}) map[string]struct{} {
	withoutHosts := s.routesWithoutHosts
	s.routesWithoutHosts = nil
	if held.Shared.Len()+held.Own.Len() == 0 {
		return resend // all are new
	}
	for route := range withoutHosts {
		for r := range target.Shared.Below(route) {
			lists.Put(&resend, r.Name, struct{}{})
		}
	}
	return resend
}

// newTombstones returns tombstones for virtual hosts that must be removed, if the client has their route configuration
// and no tombstone yet. They are sent together with additions, because a domain may move from a removed virtual host to
// an added one.
func (s *Session) newTombstones(gone map[string]*envoy.Resource) []*envoy.Resource {
	routes := s.find(envoy.RouteType)
	var list []*envoy.Resource
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		route, ok := routeOf(name)
		if routes == nil || !ok || gone[name] == nil { // a client can claim to have any resource
			continue
		}
		tombstone := envoy.Tombstone(name)
		if head := routes.current(route); head != nil && head.Divided && gone[name].Version != tombstone.Version {
			list = append(list, tombstone)
		}
	}
	s.tombstones += len(list)
	if s.tombstones > s.limits.Tombstones {
		routes.compare = true
	}
	return list
}
