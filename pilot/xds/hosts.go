package xds

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Virtual hosts by themselves. A client that takes them subscribes to route configurations by name and, once one says that its virtual hosts come that way, to
// all virtual hosts. It drops, without a word, a virtual host whose route configuration it has not, and all of a route configuration that it lets go of. So a
// virtual host follows its route configuration on the stream, each time that one is sent.

// divide gives route configurations as this client takes them, and has the virtual hosts looked at where theirs are others now.
//
// A client that comes from a server which sent it route configurations whole goes on with those: taking virtual hosts out of a route configuration and
// sending them by themselves cannot be one step, and requests in between would find none.
//
// Nor does one that keeps too much of what was removed: route configurations in one piece free it of that, in one step.
func (s *session) divide(w *watch, whole envoy.Union) envoy.Union {
	if w.declared && s.hasWhole(w.held, whole) || s.vacancies > s.limits.Vacancies {
		s.divided, w.hosts = false, nil
		s.lookAtHosts() // and find that there is nothing more to say of them
		return whole
	}
	heads, hosts := whole.Outbound.Divided()
	if v := s.find(envoy.VirtualHostType); v != nil {
		v.compare = v.compare || !v.idle() && (hosts != w.hosts || v.declared)
	}
	w.hosts = hosts
	return envoy.Union{Outbound: heads, Inbound: whole.Inbound, Omit: whole.Omit}
}

// hasWhole tells that among what a client brought is a route configuration with virtual hosts in it.
func (s *session) hasWhole(had, whole envoy.Union) bool {
	for r := range had.All {
		if is := whole.Get(r.Name); is != nil && is.Head != nil && r.Version != is.Head.Version && r.Version != is.Header.Version {
			return true
		}
	}
	return false
}

// A client that lets go of a route configuration and takes it back drops its virtual hosts, and still names their versions when it resumes. So versions tell how often the
// client was sent the route configuration before: a virtual host that tells otherwise than its route configuration is not there any more.

const repeated = "~" // stands before that number in a version

// version is that of a route configuration, or of a virtual host, as the client is told.
func (s *session) version(w *watch, r *envoy.Resource) string {
	route := r.Name
	if w.typeURL == envoy.VirtualHostType {
		route, _ = routeOf(r.Name)
	}
	if n := s.repeats[route]; n > 0 {
		return r.Version + repeated + strconv.FormatUint(uint64(n), 36)
	}
	return r.Version
}

// plain takes apart a version that a client was told.
func plain(version string) (own string, repeats uint32) {
	own, count, _ := strings.Cut(version, repeated)
	n, err := strconv.ParseUint(count, 36, 32)
	if err != nil { // nonsense is nothing that the client was told
		n = 0
	}
	return own, uint32(n)
}

// bringHeads notes the route configurations that a client brings, and gives them by the versions that are their own.
func (s *session) bringHeads(v versions) versions {
	s.repeats = map[string]uint32{}
	var made []*envoy.Resource
	for r := range v.union().All {
		own, n := plain(r.Version)
		s.repeats[r.Name] = n
		if s.repeated = s.repeated || n > 0; n > 0 && s.find(envoy.VirtualHostType) != nil {
			s.due(r.Name) // a client that brought its virtual hosts first was taken at its word
		}
		made = append(made, &envoy.Resource{Name: r.Name, Version: own})
	}
	if !s.repeated {
		return v
	}
	return versions{own: made}
}

// bringHosts gives the virtual hosts that a client brings by the versions that are their own, where their route configuration has them still.
func (s *session) bringHosts(v versions) versions {
	if !s.repeated && !v.repeated() {
		return v
	}
	var made []*envoy.Resource
	for r := range v.union().All {
		route, _ := routeOf(r.Name)
		own, n := plain(r.Version)
		if n != s.repeats[route] {
			own = r.Version + repeated
		}
		made = append(made, &envoy.Resource{Name: r.Name, Version: own})
	}
	return versions{own: made}
}

// repeat counts that a route configuration is sent. What a client that resumes does not name it may have had all the same, any number of times.
func (s *session) repeat(route string) {
	n, again := s.repeats[route]
	switch {
	case again:
		n++
	case s.resumed:
		n = s.unique
	}
	if s.repeats == nil {
		s.repeats = map[string]uint32{}
	}
	s.repeats[route] = n
	s.repeated = s.repeated || n > 0
}

// routeOf is the route configuration that a virtual host's name says.
func routeOf(host string) (route string, ok bool) {
	i := strings.LastIndexByte(host, '/')
	return host[:max(i, 0)], i >= 0
}

// renew notes that a route configuration is sent without its virtual hosts: they are to follow, even if the client had them before.
func (s *session) renew(route string) {
	s.repeat(route)
	s.due(route)
}

// due has the virtual hosts of a route configuration sent, whatever the client had.
func (s *session) due(route string) {
	if s.renewed == nil {
		s.renewed = map[string]struct{}{}
	}
	s.renewed[route] = struct{}{}
	s.lookAtHosts()
}

// bare forgets the virtual hosts of a client that has no route configuration any more.
func (s *session) bare(routes *watch) {
	routes.hosts = nil
	s.lookAtHosts()
}

// lookAtHosts has the virtual hosts compared, if the client wants any.
func (s *session) lookAtHosts() {
	if v := s.find(envoy.VirtualHostType); v != nil {
		v.compare = v.compare || !v.idle()
	}
}

// anew adds to what is to be sent again the virtual hosts of the route configurations that were sent.
func (s *session) anew(target, held envoy.Union, again map[string]struct{}) map[string]struct{} {
	renewed := s.renewed
	s.renewed = nil
	if held.Outbound.Len()+held.Inbound.Len() == 0 {
		return again // all are new
	}
	for route := range renewed {
		for r := range target.Outbound.Below(route) {
			if again == nil {
				again = map[string]struct{}{}
			}
			again[r.Name] = struct{}{}
		}
	}
	return again
}

// vacate gives what takes the place of virtual hosts before they are removed, where the client has their route configuration, and perhaps took it back since they were marked: in
// one step with what else changes, for a domain may move from one to the other.
func (s *session) vacate(gone map[string]*envoy.Resource) []*envoy.Resource {
	routes := s.find(envoy.RouteType)
	var list []*envoy.Resource
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		route, ok := routeOf(name)
		if routes == nil || !ok || gone[name] == nil { // a client may say that it has anything
			continue
		}
		vacancy := envoy.Vacancy(name)
		if head := routes.current(route); head != nil && head.Divided && gone[name].Version != vacancy.Version {
			list = append(list, vacancy)
		}
	}
	s.vacancies += len(list)
	if s.vacancies > s.limits.Vacancies {
		routes.compare = true
	}
	return list
}
