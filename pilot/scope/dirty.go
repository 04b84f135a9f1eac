package scope

import (
	"cmp"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Dirty lists what may differ between an Index and the previous one, by the keys from which resources are made. A
// cluster, a virtual host and an assignment belong to a host. An outbound listener belongs to a ListenerKey. Entries
// that are not listed are unchanged in every scope. A listed entry may have changed.
type Dirty struct {
	All bool // everything may have changed, because of the mesh configuration or an object that concerns all proxies
	// Hosts are hosts of services and of VirtualServices, sorted. A pattern is listed together with the hosts that it
	// covers.
	Hosts     []string
	Endpoints []string // hosts of services whose endpoints changed
	// Listeners are the listeners of the services of Hosts, before and after the change. There is none for a host of
	// which only VirtualServices changed.
	Listeners []ListenerKey
	Facts     []kinds.Key // keys of facts that were added, changed or deleted
	// Credentials are the names of the Secrets and ConfigMaps of any namespace whose TLS content changed, or for which
	// the proxies that may be sent it changed, sorted.
	Credentials []string
	Roots       bool // whether the roots that proxies trust changed
	Reassign    Reassign
	// Compare says that more than assignments and the configuration of single workloads may differ, so that every
	// stream compares all its resources.
	Compare bool
}

// ListenerKey identifies outbound listeners by address and port. Address is empty for the wildcard address, and for
// addresses that a Sidecar sets.
type ListenerKey struct {
	Address  string
	Port     uint32
	Wildcard bool // the listener at the wildcard address may have changed, and not only one of a Sidecar
}

// NoHosts reports whether no host is dirty. Endpoints, facts, credentials, roots and assignments of proxies may be.
func (d *Dirty) NoHosts() bool { return !d.All && len(d.Hosts) == 0 }

// ReassignsOnly reports whether no resource is dirty and only the cohorts of proxies may have changed.
func (d *Dirty) ReassignsOnly() bool {
	return d.NoHosts() && !d.Roots && len(d.Endpoints)+len(d.Listeners)+len(d.Facts)+len(d.Credentials) == 0
}

// appendListeners appends the keys of a service's listeners.
func appendListeners(list []ListenerKey, s *registry.Service, endpoints ...*snapshot.Endpoints) []ListenerKey {
	var addresses []string
	for in := range variants(s) {
		addresses = append(append(addresses, in.Addresses...), in.AutoAddress...)
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
		list = append(list, ListenerKey{"", p.Number, onWildcard(s, p)})
		for _, a := range addresses {
			list = append(list, ListenerKey{a, p.Number, false})
		}
	}
	return list
}

// MergeDirty returns the union of several Dirty, without duplicates.
func MergeDirty(list []*Dirty) *Dirty {
	all := &Dirty{}
	for _, c := range list {
		all.All, all.Roots, all.Compare = all.All || c.All, all.Roots || c.Roots, all.Compare || c.Compare
		all.Hosts = append(all.Hosts, c.Hosts...)
		all.Endpoints = append(all.Endpoints, c.Endpoints...)
		all.Credentials = append(all.Credentials, c.Credentials...)
		all.Listeners = append(all.Listeners, c.Listeners...)
		all.Facts = append(all.Facts, c.Facts...)
		all.Reassign.All = all.Reassign.All || c.Reassign.All
		all.Reassign.Namespaces = append(all.Reassign.Namespaces, c.Reassign.Namespaces...)
	}
	for _, names := range []*[]string{&all.Hosts, &all.Endpoints, &all.Credentials, &all.Reassign.Namespaces} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	slices.SortFunc(all.Listeners, func(a, b ListenerKey) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(wildcardRank(a), wildcardRank(b)))
	})
	all.Listeners = slices.Compact(all.Listeners)
	slices.SortFunc(all.Facts, func(a, b kinds.Key) int {
		return cmp.Or(cmp.Compare(a.Kind.Name, b.Kind.Name), cmp.Compare(a.Name, b.Name))
	})
	all.Facts = slices.Compact(all.Facts)
	return all
}

func wildcardRank(p ListenerKey) int {
	if p.Wildcard {
		return 1
	}
	return 0
}
