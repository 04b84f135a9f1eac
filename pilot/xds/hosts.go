package xds

import (
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
func (s *session) divide(w *watch, whole envoy.Union) envoy.Union {
	if w.declared && s.hasWhole(w.held, whole) {
		s.divided = false
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

// renew notes that a route configuration is sent without its virtual hosts: they are to follow, even if the client had them before.
func (s *session) renew(route string) {
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
	if held.Outbound.Len() == 0 {
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

// vacate gives what takes the place of virtual hosts before they are removed, where the client has their route configuration: in one step with what else changes,
// for a domain may move from one to the other.
func (s *session) vacate(removed []*envoy.Resource) []*envoy.Resource {
	routes := s.find(envoy.RouteType)
	var list []*envoy.Resource
	for _, r := range removed {
		i := strings.LastIndexByte(r.Name, '/')
		if routes == nil || i < 0 { // a client may say that it has anything
			continue
		}
		if head := routes.current(r.Name[:i]); head != nil && head.Divided {
			list = append(list, envoy.Vacancy(r.Name))
		}
	}
	return list
}
