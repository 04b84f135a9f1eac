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

// Dirty lists what may differ between an Index and the one before, in the terms by which resources are made. A cluster,
// a virtual host and an assignment belong to a host; an outbound listener belongs to a ListenerKey. Anything not listed
// is unchanged in every scope; a listed entry may have changed.
type Dirty struct {
	All bool // everything may have changed: the mesh configuration or a PeerAuthentication did
	// Hosts are those of services and of VirtualServices, sorted. A pattern is listed together with the hosts that it
	// covers.
	Hosts     []string
	Endpoints []string // hosts of services whose endpoints changed
	// Listeners are those of the services of Hosts, before and after the change. A host where only VirtualServices
	// changed has none here.
	Listeners []ListenerKey
	Reassign  Reassign
}

// ListenerKey identifies outbound listeners by address and port. Address is empty for the wildcard address, and for
// addresses that a Sidecar sets.
type ListenerKey struct {
	Address  string
	Port     uint32
	Wildcard bool // the wildcard's listener may have changed, not only one of a Sidecar
}

// Empty reports whether nothing changed, except perhaps endpoints.
func (d *Dirty) Empty() bool { return !d.All && len(d.Hosts) == 0 }

// findDirty returns what follows from the Snapshot's Diff and from changed VirtualServices.
func (x *Index) findDirty(last *Index, virtual []virtualChange) Dirty {
	diff := &x.Diff
	d := Dirty{All: diff.Global, Reassign: x.findReassign(last, virtual)}
	s := closure{index: x, hosts: map[string]struct{}{}, changed: map[string]struct{}{}}
	oldServices := map[string][]*registry.Service{} // by host
	oldEndpoints := map[registry.ServiceKey]*snapshot.Endpoints{}
	for _, sc := range diff.Services {
		for _, svc := range []*registry.Service{sc.Old, sc.New} {
			if svc != nil {
				s.addChanged(svc.Host)
				s.addRelated(svc)
			}
		}
		if sc.Old != nil {
			oldServices[sc.Old.Host] = append(oldServices[sc.Old.Host], sc.Old)
		}
	}
	for _, b := range diff.OldEndpoints {
		oldEndpoints[b.ServiceKey] = b.Endpoints
		d.Endpoints = append(d.Endpoints, b.Host)
		if is := x.Endpoints(b.ServiceKey); b.Identities != is.Identities || b.TLS != is.TLS || x.embedsEndpoints(b.ServiceKey) {
			s.addChanged(b.Host)
		}
	}
	for _, cc := range diff.Configs {
		for _, o := range []*kinds.Object{cc.Old, cc.New} {
			switch {
			case o == nil:
			case o.Kind == kinds.PeerAuthentication:
				d.All = true
			case o.Kind == kinds.DestinationRule:
				s.eachCovered(x.rule(o).host, s.addChanged)
			}
		}
	}
	var ofSidecars, ofGateways []*VirtualService
	for _, vc := range virtual {
		for _, v := range []*VirtualService{vc.old, vc.new} {
			switch {
			case v == nil:
			case slices.Contains(v.Gateways, "mesh"):
				ofSidecars = append(ofSidecars, v)
			default:
				ofGateways = append(ofGateways, v)
			}
		}
	}
	for _, v := range ofSidecars { // a Sidecar imports the services that these route to
		for _, h := range v.DestinationHosts {
			if x.importAffectsOthers(h) {
				s.addChanged(h)
			}
		}
	}
	s.run()
	for h := range s.hosts {
		for svc := range x.ServicesByHost(h) {
			d.Listeners = appendListeners(d.Listeners, svc, x.Endpoints(svc.Key()), oldEndpoints[svc.Key()])
		}
		for _, svc := range oldServices[h] {
			d.Listeners = appendListeners(d.Listeners, svc, x.Endpoints(svc.Key()), oldEndpoints[svc.Key()], last.Endpoints(svc.Key()))
		}
	}
	for _, v := range ofSidecars { // routes do not affect listeners
		s.addRouted(v)
		for _, h := range v.DestinationHosts {
			s.hosts[h] = struct{}{}
		}
	}
	for _, v := range ofGateways {
		for _, h := range v.Hosts {
			s.hosts[h] = struct{}{}
		}
	}
	s.run()
	d.Hosts = slices.Sorted(maps.Keys(s.hosts))
	return d
}

// importAffectsOthers reports whether importing a host affects more than that host: it is an alias, it has aliases, or
// services of several namespaces have it.
func (x *Index) importAffectsOthers(host string) bool {
	n := 0
	for svc := range x.ServicesByHost(host) {
		if n++; n > 1 || svc.Resolution == registry.Alias {
			return true
		}
	}
	_, ok := x.aliases.First(func(a alias) int { return strings.Compare(a.target, host) })
	return ok
}

// embedsEndpoints reports whether a service's endpoints are part of more than its assignments.
func (x *Index) embedsEndpoints(k registry.ServiceKey) bool {
	for in := range variants(x.Service(k)) {
		if in.Resolution != registry.ClientSide || in.Headless {
			return true
		}
	}
	return false
}

// appendListeners appends the keys of a service's listeners.
func appendListeners(list []ListenerKey, s *registry.Service, endpoints ...*snapshot.Endpoints) []ListenerKey {
	var addresses []string
	wildcard := false // its listeners may be at the wildcard address
	for in := range variants(s) {
		addresses = append(append(addresses, in.Addresses...), in.AutoAddress...)
		wildcard = wildcard || len(in.Addresses) == 0 || slices.ContainsFunc(in.Addresses, func(a string) bool { return strings.Contains(a, "/") })
		if ReachedPerEndpoint(in) {
			for _, eps := range endpoints {
				if eps != nil {
					for _, e := range eps.List {
						addresses = append(addresses, e.Address)
					}
				}
			}
		}
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	for i := range s.Ports {
		p := &s.Ports[i]
		list = append(list, ListenerKey{"", p.Number, wildcard || p.Protocol.IsHTTP()})
		for _, a := range addresses {
			list = append(list, ListenerKey{a, p.Number, false})
		}
	}
	return list
}

// closure collects the hosts that changes affect. It follows aliases, routes, patterns and shared addresses.
type closure struct {
	index   *Index
	hosts   map[string]struct{}
	changed map[string]struct{} // the hosts whose services, endpoints, rules or routes changed
	queue   []string            // the hosts of changed whose relations are still to be followed
}

// addChanged adds a host whose services, endpoints, rules or routes changed.
func (s *closure) addChanged(host string) {
	if _, ok := s.changed[host]; !ok {
		s.changed[host], s.hosts[host] = struct{}{}, struct{}{}
		s.queue = append(s.queue, host)
	}
}

// addSharingAddress adds the hosts that share an address with a service. Which of them is called by the address depends
// on all of them.
func (s *closure) addSharingAddress(svc *registry.Service) {
	for in := range variants(svc) {
		for _, list := range [][]string{in.Addresses, in.AutoAddress} {
			for _, a := range list {
				if s.index.HasHost(a) { // a host that is an address
					s.hosts[a] = struct{}{}
				}
				for l := range s.index.locations.Where(withAddress(a)) {
					s.hosts[l.service.Host] = struct{}{}
				}
			}
		}
	}
}

// eachCovered calls add for a host and, if it is a pattern, for each service's host that it covers.
func (s *closure) eachCovered(host string, add func(string)) {
	add(host)
	if strings.HasPrefix(host, "*") {
		for svc := range s.index.EachService {
			if names.Covers(host, svc.Host) {
				add(svc.Host)
			}
		}
	}
}

// addRouted adds the hosts of a VirtualService. They count as changed, because their routes also belong to their
// aliases.
func (s *closure) addRouted(v *VirtualService) {
	for _, h := range v.Hosts {
		s.eachCovered(h, s.addChanged)
	}
}

// addRelated adds the hosts that are related to a service: those that share an address, and an alias' target.
func (s *closure) addRelated(svc *registry.Service) {
	s.addSharingAddress(svc)
	if svc.Resolution == registry.Alias {
		s.addChanged(svc.ExternalName) // its virtual hosts include the alias' name
	}
}

// run follows the relations of changed hosts until there are no more: their aliases, and the routes that lead to them.
func (s *closure) run() {
	reached, bound := map[*VirtualService]struct{}{}, map[*VirtualService]struct{}{}
	for len(s.queue) > 0 {
		host := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		for a := range s.index.aliases.Where(func(a alias) int { return strings.Compare(a.target, host) }) {
			s.addChanged(a.service.Host)
		}
		for svc := range s.index.ServicesByHost(host) {
			s.addRelated(svc)
		}
		for l := range s.index.meshDestinations.Where(withName(host)) {
			if _, ok := reached[l.VirtualService]; !ok {
				reached[l.VirtualService] = struct{}{}
				for _, h := range l.Hosts {
					s.eachCovered(h, func(h string) { s.hosts[h] = struct{}{} })
				}
			}
		}
		// The virtual hosts of a VirtualService that have no service depend on the services that it routes.
		for pattern := range s.index.Patterns(host) {
			for l := range s.index.meshHosts.Where(withName(pattern)) {
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

// Patterns returns a host and each pattern that covers it, the most specific first. Partial patterns are left out.
func Patterns(host string) iter.Seq[string] { return patterns(host, nil) }

// IsPartial reports whether a pattern is partial, such as *-a.example.com: its star ends within a label.
func IsPartial(host string) bool {
	return strings.HasPrefix(host, "*") && host != "*" && !strings.HasPrefix(host, "*.")
}

// Patterns is the function Patterns, with the partial patterns that VirtualServices of sidecars have.
func (x *Index) Patterns(host string) iter.Seq[string] {
	if x.partialMeshHosts.Len() == 0 {
		return Patterns(host)
	}
	return patterns(host, func(tail string) bool {
		_, ok := x.partialMeshHosts.First(func(l link) int { return strings.Compare(l.name[1:], tail) })
		return ok
	})
}

// patterns is Patterns, with the partial patterns for whose tail (after the star) partial reports true.
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

func withAddress(address string) func(location) int {
	return func(l location) int { return strings.Compare(l.address, address) }
}

// MergeDirty returns the union of several Dirty, without duplicates.
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
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(wildcardRank(a), wildcardRank(b)))
	})
	all.Listeners = slices.Compact(all.Listeners)
	return all
}

func wildcardRank(p ListenerKey) int {
	if p.Wildcard {
		return 1
	}
	return 0
}
