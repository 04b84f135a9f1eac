package scope

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Dirty says in what an Index differs from the one before, in the terms by which resources are made: a cluster, a virtual host and an assignment belong to
// a host, a listener for outgoing traffic to a place. What is not named here is the same as it was, in every scope; what is may be.
type Dirty struct {
	All       bool          // everything may be different: the mesh, or a policy of peers
	Hosts     []string      // of services and of VirtualServices, sorted; patterns stand for themselves, what they cover is listed too
	Endpoints []string      // hosts of services whose endpoints are others
	Listeners []ListenerKey // of the services of Hosts, as they were and as they are, but for hosts of which nothing but VirtualServices is different
	Reassign  Reassign
}

// ListenerKey is where a listener for outgoing traffic may stand. Address is empty for the wildcard, and for whatever a Sidecar says instead.
type ListenerKey struct {
	Address  string
	Port     uint32
	Wildcard bool // the wildcard's is different, not only that of a Sidecar
}

// Empty tells that nothing is different but, perhaps, endpoints.
func (c *Dirty) Empty() bool { return !c.All && len(c.Hosts) == 0 }

// changes works out what follows from the Snapshot's Diff and from VirtualServices.
func (x *Index) changes(last *Index, virtual []virtualChange) Dirty {
	d := &x.Diff
	c := Dirty{All: d.Global, Reassign: x.joins(last, virtual)}
	s := spreading{index: x, hosts: map[string]struct{}{}, known: map[string]struct{}{}}
	gone := map[string][]*registry.Service{} // services as they were, by host
	was := map[registry.ServiceKey]*snapshot.Endpoints{}
	for _, sc := range d.Services {
		for _, svc := range []*registry.Service{sc.Old, sc.New} {
			if svc != nil {
				s.facts(svc.Host)
				s.follow(svc)
			}
		}
		if sc.Old != nil {
			gone[sc.Old.Host] = append(gone[sc.Old.Host], sc.Old)
		}
	}
	for _, b := range d.OldEndpoints {
		was[b.ServiceKey] = b.Endpoints
		c.Endpoints = append(c.Endpoints, b.Host)
		if is := x.Endpoints(b.ServiceKey); b.Identities != is.Identities || b.TLS != is.TLS || x.embedsEndpoints(b.ServiceKey) {
			s.facts(b.Host)
		}
	}
	for _, cc := range d.Configs {
		for _, o := range []*kinds.Object{cc.Old, cc.New} {
			switch {
			case o == nil:
			case o.Kind == kinds.PeerAuthentication:
				c.All = true
			case o.Kind == kinds.DestinationRule:
				s.covered(x.rule(o).host, s.facts)
			}
		}
	}
	var ofSidecars, ofGateways []*VirtualService
	for _, vc := range virtual {
		for _, v := range []*VirtualService{vc.was, vc.is} {
			switch {
			case v == nil:
			case slices.Contains(v.Gateways, "mesh"):
				ofSidecars = append(ofSidecars, v)
			default:
				ofGateways = append(ofGateways, v)
			}
		}
	}
	for _, v := range ofSidecars { // which import services by them
		for _, h := range v.DestinationHosts {
			if x.entangled(h) {
				s.facts(h)
			}
		}
	}
	s.spread()
	for h := range s.hosts {
		for svc := range x.ServicesByHost(h) {
			c.Listeners = appendPlaces(c.Listeners, svc, x.Endpoints(svc.Key()), was[svc.Key()])
		}
		for _, svc := range gone[h] {
			c.Listeners = appendPlaces(c.Listeners, svc, x.Endpoints(svc.Key()), was[svc.Key()], last.Endpoints(svc.Key()))
		}
	}
	for _, v := range ofSidecars { // routes have no say in listeners
		s.routes(v)
		for _, h := range v.DestinationHosts {
			s.hosts[h] = struct{}{}
		}
	}
	for _, v := range ofGateways {
		for _, h := range v.Hosts {
			s.hosts[h] = struct{}{}
		}
	}
	s.spread()
	c.Hosts = slices.Sorted(maps.Keys(s.hosts))
	return c
}

// entangled tells a host whose import makes a difference to more than itself: it is another name, or has others, or is had by services of several namespaces.
func (x *Index) entangled(host string) bool {
	n := 0
	for svc := range x.ServicesByHost(host) {
		if n++; n > 1 || svc.Resolution == registry.Alias {
			return true
		}
	}
	_, ok := x.aliases.First(func(a alias) int { return strings.Compare(a.target, host) })
	return ok
}

// embedsEndpoints tells a service whose endpoints are part of more than assignments.
func (x *Index) embedsEndpoints(k registry.ServiceKey) bool {
	for in := range variants(x.Service(k)) {
		if in.Resolution != registry.ClientSide || in.Headless {
			return true
		}
	}
	return false
}

// appendPlaces adds where a service has listeners.
func appendPlaces(list []ListenerKey, s *registry.Service, endpoints ...*snapshot.Endpoints) []ListenerKey {
	var at []string
	bare := false // its listeners may be on the wildcard
	for in := range variants(s) {
		at = append(append(at, in.Addresses...), in.AutoAddress...)
		bare = bare || len(in.Addresses) == 0 || slices.ContainsFunc(in.Addresses, func(a string) bool { return strings.Contains(a, "/") })
		if ReachedPerEndpoint(in) {
			for _, eps := range endpoints {
				if eps != nil {
					for _, e := range eps.List {
						at = append(at, e.Address)
					}
				}
			}
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	for i := range s.Ports {
		p := &s.Ports[i]
		list = append(list, ListenerKey{"", p.Number, bare || p.Protocol.IsHTTP()})
		for _, a := range at {
			list = append(list, ListenerKey{a, p.Number, false})
		}
	}
	return list
}

// spreading gathers the hosts that changes reach.
type spreading struct {
	index *Index
	hosts map[string]struct{}
	known map[string]struct{} // of hosts: those whose facts are different
	due   []string            // of known: those that are still to be spread
}

// facts notes a host whose services, endpoints, rules or routes are different.
func (s *spreading) facts(host string) {
	if _, ok := s.known[host]; !ok {
		s.known[host], s.hosts[host] = struct{}{}, struct{}{}
		s.due = append(s.due, host)
	}
}

// neighbours notes the services that may be called by an address of this one: which of them is, depends on both.
func (s *spreading) neighbours(svc *registry.Service) {
	for in := range variants(svc) {
		for _, list := range [][]string{in.Addresses, in.AutoAddress} {
			for _, a := range list {
				if s.index.HasHost(a) { // a host that is an address
					s.hosts[a] = struct{}{}
				}
				for l := range s.index.located.Where(at(a)) {
					s.hosts[l.service.Host] = struct{}{}
				}
			}
		}
	}
}

// covered calls note for a host and, if it is a pattern, for each service's that it covers.
func (s *spreading) covered(host string, note func(string)) {
	note(host)
	if strings.HasPrefix(host, "*") {
		for svc := range s.index.EachService {
			if names.Covers(host, svc.Host) {
				note(svc.Host)
			}
		}
	}
}

// routes notes the hosts that a VirtualService routes: as facts, for by them aliases are told from what they stand for.
func (s *spreading) routes(v *VirtualService) {
	for _, h := range v.Hosts {
		s.covered(h, s.facts)
	}
}

// follow notes what else is called differently where a service is.
func (s *spreading) follow(svc *registry.Service) {
	s.neighbours(svc)
	if svc.Resolution == registry.Alias {
		s.facts(svc.ExternalName) // by this one's name it is called too
	}
}

// spread follows names that stand for others, and routes to what they lead to.
func (s *spreading) spread() {
	reached, bound := map[*VirtualService]struct{}{}, map[*VirtualService]struct{}{}
	for len(s.due) > 0 {
		host := s.due[len(s.due)-1]
		s.due = s.due[:len(s.due)-1]
		for a := range s.index.aliases.Where(func(a alias) int { return strings.Compare(a.target, host) }) {
			s.facts(a.service.Host)
		}
		for svc := range s.index.ServicesByHost(host) {
			s.follow(svc)
		}
		for l := range s.index.reached.Where(linked(host)) {
			if _, ok := reached[l.VirtualService]; !ok {
				reached[l.VirtualService] = struct{}{}
				for _, h := range l.Hosts {
					s.covered(h, func(h string) { s.hosts[h] = struct{}{} })
				}
			}
		}
		for pattern := range s.index.Patterns(host) { // whether a VirtualService has virtual hosts without a service depends on the services that it has
			for l := range s.index.bound.Where(linked(pattern)) {
				if _, ok := bound[l.VirtualService]; !ok {
					bound[l.VirtualService] = struct{}{}
					for _, h := range l.Hosts {
						s.hosts[h] = struct{}{}
					}
				}
			}
		}
	}
}

// Patterns yields a host and each pattern that covers it but for those that are Partial, the most specific first.
func Patterns(host string) iter.Seq[string] { return patterns(host, nil) }

// IsPartial tells a pattern that is not among Patterns of what it covers: *-a.example.com.
func IsPartial(host string) bool {
	return strings.HasPrefix(host, "*") && host != "*" && !strings.HasPrefix(host, "*.")
}

// Patterns is Patterns with the Partial ones among them that VirtualServices of sidecars have.
func (x *Index) Patterns(host string) iter.Seq[string] {
	if x.partials.Len() == 0 {
		return Patterns(host)
	}
	return patterns(host, func(tail string) bool {
		_, ok := x.partials.First(func(l link) int { return strings.Compare(l.name[1:], tail) })
		return ok
	})
}

// patterns is Patterns with the Partial ones among them for whose tail, which follows the star, partial reports true.
func patterns(host string, partial func(tail string) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(host) {
			return
		}
		for i := 1; i <= len(host); i++ {
			tail := host[i:]
			if tail != "" && tail[0] != '.' && (partial == nil || !partial(tail)) {
				continue
			}
			if pattern := "*" + tail; pattern != host && !yield(pattern) {
				return
			}
		}
	}
}

func at(address string) func(location) int {
	return func(l location) int { return strings.Compare(l.address, address) }
}

// MergeDirty gives several Changes as one. Nothing is in it twice.
func MergeDirty(list []*Dirty) *Dirty {
	all := &Dirty{}
	for _, c := range list {
		all.All = all.All || c.All
		all.Hosts = append(all.Hosts, c.Hosts...)
		all.Endpoints = append(all.Endpoints, c.Endpoints...)
		all.Listeners = append(all.Listeners, c.Listeners...)
		all.Reassign.All = all.Reassign.All || c.Reassign.All
		all.Reassign.Namespaces = append(all.Reassign.Namespaces, c.Reassign.Namespaces...)
	}
	for _, names := range []*[]string{&all.Hosts, &all.Endpoints, &all.Reassign.Namespaces} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	slices.SortFunc(all.Listeners, func(a, b ListenerKey) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(wild(a), wild(b)))
	})
	all.Listeners = slices.Compact(all.Listeners)
	return all
}

func wild(p ListenerKey) int {
	if p.Wildcard {
		return 1
	}
	return 0
}
