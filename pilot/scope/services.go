package scope

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// serviceTables hold services.
type serviceTables struct {
	ports      frozen.Table[port]     // ports ordered by number and protocol
	aliasPorts frozen.Table[port]     // ports of aliases in the same order
	locations  frozen.Table[location] // ordered by address
	selectors  frozen.Table[selector] // ordered by namespace and one label of the selector
	aliases    frozen.Table[alias]    // ordered by target

	// Numbers of services that are node-local, that prefer close endpoints, and that are resolved by proxies and have
	// endpoints with a location or labels.
	nodeLocal, trafficDistribution, spreadInClusters int
}

func (t *serviceTables) all() []declared {
	return []declared{
		declare("ports", &t.ports, comparePorts),
		declare("aliasPorts", &t.aliasPorts, comparePorts),
		declare("locations", &t.locations, compareLocations),
		declare("selectors", &t.selectors, compareSelectors),
		declare("aliases", &t.aliases, compareAliases),
	}
}

// port is one port of a service.
type port struct {
	*registry.Port
	service *registry.Service
}

func (p port) String() string {
	return fmt.Sprintf("%d %s of %s", p.Number, p.Protocol, serviceName(p.service))
}

func comparePorts(a, b port) int {
	if a.Number != b.Number {
		return cmp.Compare(a.Number, b.Number)
	}
	if a.Protocol != b.Protocol {
		return cmp.Compare(a.Protocol, b.Protocol)
	}
	if c := snapshot.ByServicePrecedence(a.service, b.service); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// location is a service at an address: its own address, or the address of an endpoint if the service is found by
// endpoints.
type location struct {
	address string
	service *registry.Service
}

func (l location) String() string { return l.address + " of " + serviceName(l.service) }

func compareLocations(a, b location) int {
	if c := strings.Compare(a.address, b.address); c != 0 {
		return c
	}
	return snapshot.ByServicePrecedence(a.service, b.service)
}

func withAddress(address string) func(location) int {
	return func(l location) int { return strings.Compare(l.address, address) }
}

// selector is a service with one of the labels of its selector.
type selector struct {
	key, value string
	service    *registry.Service
}

func (s selector) String() string { return s.key + "=" + s.value + " of " + serviceName(s.service) }

func compareSelectors(a, b selector) int {
	if c := strings.Compare(a.service.Namespace, b.service.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(a.key, b.key); c != 0 {
		return c
	}
	if c := strings.Compare(a.value, b.value); c != 0 {
		return c
	}
	return snapshot.ByServicePrecedence(a.service, b.service)
}

// alias is a service that is an alias of a host.
type alias struct {
	target  string
	service *registry.Service
}

func (a alias) String() string { return a.target + " by " + serviceName(a.service) }

func compareAliases(a, b alias) int {
	return cmp.Or(strings.Compare(a.target, b.target), snapshot.ByServicePrecedence(a.service, b.service))
}

func withTarget(host string) func(alias) int {
	return func(a alias) int { return strings.Compare(a.target, host) }
}

func serviceName(s *registry.Service) string { return s.Namespace + "/" + s.Host }

// setService adds a service, with its endpoints, to the tables, or removes it.
func (t *serviceTables) setService(e *frozen.Edit, s *registry.Service, eps *snapshot.Endpoints, add bool) {
	if s == nil {
		return
	}
	ports := &t.ports
	if s.Resolution == registry.Alias { // an alias has the listeners of its target
		ports = &t.aliasPorts
	}
	for i := range s.Ports {
		putOrDelete(ports, e, add, port{&s.Ports[i], s})
	}
	for _, a := range addresses(s, eps) {
		putOrDelete(&t.locations, e, add, location{a, s})
	}
	for in := range variants(s) {
		if len(in.Selector) > 0 {
			least := ""
			for k := range in.Selector {
				if least == "" || k < least {
					least = k
				}
			}
			putOrDelete(&t.selectors, e, add, selector{least, in.Selector[least], s})
		}
	}
	if s.Resolution == registry.Alias {
		putOrDelete(&t.aliases, e, add, alias{s.ExternalName, s})
	}
	n := -1
	if add {
		n = 1
	}
	if s.NodeLocal {
		t.nodeLocal += n
	}
	if s.TrafficDist != "" {
		t.trafficDistribution += n
	}
	if spreadInCluster(s, eps) {
		t.spreadInClusters += n
	}
}

// serviceInvalidation returns the invalidation rules for changed services and endpoints, and for hosts that depend on
// services.
func serviceInvalidation() []InvalidationRule {
	return []InvalidationRule{
		{Name: "services", start: func(b *dirtyBuilder) {
			for svc := range b.changedServices {
				b.addChangedHost(svc.Host)
			}
		}},
		{Name: "endpoints", start: func(b *dirtyBuilder) {
			for _, old := range b.diff.OldEndpoints {
				b.dirty.Endpoints = append(b.dirty.Endpoints, old.Host)
			}
		}},
		{Name: "endpoint summaries", start: func(b *dirtyBuilder) {
			for _, old := range b.diff.OldEndpoints {
				if old.EndpointSummary != b.index.EndpointSummary(old.ServiceKey) {
					b.addChangedHost(old.Host)
				}
			}
		}},
		{Name: "embedded endpoints", start: func(b *dirtyBuilder) {
			for _, old := range b.diff.OldEndpoints {
				if b.index.embedsEndpoints(old.ServiceKey) {
					b.addChangedHost(old.Host)
				}
			}
		}},
		{Name: "shared addresses", start: func(b *dirtyBuilder) {
			for l := range changedRows(b.last.locations, b.index.locations) {
				if hasAddress(l.service, l.address) {
					b.addAtAddress(l.address)
				}
			}
		}, follow: func(b *dirtyBuilder, host string) {
			for svc := range b.index.ServicesByHost(host) {
				for in := range variants(svc) {
					for _, list := range [][]string{in.Addresses, in.AutoAddress} {
						for _, a := range list {
							b.addAtAddress(a)
						}
					}
				}
			}
		}},
		{Name: "aliases", follow: func(b *dirtyBuilder, host string) {
			for a := range b.index.aliases.Where(withTarget(host)) {
				b.addChangedHost(a.service.Host)
			}
		}},
		// The virtual hosts of a service include the names of its aliases.
		{Name: "alias targets", start: func(b *dirtyBuilder) {
			for a := range changedRows(b.last.aliases, b.index.aliases) {
				b.addChangedHost(a.target)
			}
		}, follow: func(b *dirtyBuilder, host string) {
			for svc := range b.index.ServicesByHost(host) {
				if svc.Resolution == registry.Alias {
					b.addChangedHost(svc.ExternalName)
				}
			}
		}},
		{Name: "placement", start: func(b *dirtyBuilder) {
			b.dirty.Reassign.All = b.dirty.Reassign.All || b.last.placement() != b.index.placement()
		}},
		{Name: "workloads found by address", start: func(b *dirtyBuilder) {
			for _, old := range b.diff.OldEndpoints {
				b.dirty.Reassign.All = b.dirty.Reassign.All || servedByAddress(b.index.Service(old.ServiceKey))
			}
			for svc := range b.changedServices {
				b.dirty.Reassign.All = b.dirty.Reassign.All || servedByAddress(svc)
			}
		}},
		{Name: "workloads that serve", start: func(b *dirtyBuilder) { // selected in the service's own namespace
			for svc := range b.changedServices {
				b.dirty.Reassign.add(svc.Namespace)
			}
		}},
	}
}

// CandidateServices returns, by precedence, the services that a workload with those labels and addresses may serve. The
// list may contain too many services, never too few. An unknown workload is found by its addresses alone.
func (x *Index) CandidateServices(namespace string, labels map[string]string, addresses []string, known bool) iter.Seq[*registry.Service] {
	var found []*registry.Service
	if !known {
		x.endpointServicesOnce.Do(x.indexEndpoints)
		for _, a := range addresses {
			found = append(found, x.endpointServices[a]...)
		}
		return byPrecedence(found)
	}
	for k, v := range labels {
		for s := range x.selectors.Where(func(s selector) int {
			if c := strings.Compare(s.service.Namespace, namespace); c != 0 {
				return c
			}
			if c := strings.Compare(s.key, k); c != 0 {
				return c
			}
			return strings.Compare(s.value, v)
		}) {
			found = append(found, s.service)
		}
	}
	for _, a := range addresses {
		for l := range x.locations.Select(withAddress(a), func(l location) bool { return servedByAddress(l.service) }) {
			found = append(found, l.service)
		}
	}
	return byPrecedence(found)
}

func byPrecedence(found []*registry.Service) iter.Seq[*registry.Service] {
	slices.SortFunc(found, snapshot.ByServicePrecedence)
	return slices.Values(slices.Compact(found))
}

// indexEndpoints indexes the services by the addresses of their endpoints.
func (x *Index) indexEndpoints() {
	x.endpointServices = map[string][]*registry.Service{}
	for s := range x.EachService {
		for _, e := range x.Endpoints(s.Key()).List {
			if all := x.endpointServices[e.Address]; len(all) == 0 || all[len(all)-1] != s {
				x.endpointServices[e.Address] = append(all, s)
			}
		}
	}
}

// ServicesByPort returns the services with a port of that number for which match reports true. A service may be
// repeated.
func (x *Index) ServicesByPort(number uint32, match func(*registry.Service) bool) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for _, ports := range []frozen.Table[port]{x.ports, x.aliasPorts} {
			of := func(p port) int { return cmp.Compare(p.Number, number) }
			for p := range ports.Select(of, func(p port) bool { return match(p.service) }) {
				if !yield(p.service) {
					return
				}
			}
		}
	}
}

// IsAlias reports whether a service of a host is an alias of another host.
func (x *Index) IsAlias(host string) bool {
	return lists.Any(x.ServicesByHost(host), func(s *registry.Service) bool { return s.Resolution == registry.Alias })
}

// HostsAtAddress calls visit for the hosts of the services that have an address in some cluster.
func (x *Index) HostsAtAddress(address string, visit func(host string)) {
	for l := range x.locations.Select(withAddress(address), func(l location) bool { return hasAddress(l.service, address) }) {
		visit(l.service.Host)
	}
}

// Aliases calls visit once for each service that is an alias of a host, directly or through other aliases.
func (x *Index) Aliases(host string, visit func(*registry.Service)) {
	if x.aliases.Empty() {
		return
	}
	seen := map[*registry.Service]bool{}
	var follow func(host string, depth int)
	follow = func(host string, depth int) {
		for a := range x.aliases.Where(withTarget(host)) {
			if !seen[a.service] && depth < names.MaxAliasDepth {
				seen[a.service] = true
				visit(a.service)
				follow(a.service.Host, depth+1)
			}
		}
	}
	follow(host, 0)
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
	_, ok := x.aliases.First(withTarget(host))
	return ok
}

// beyondAssignments reports whether a change of a service's endpoints may change more than assignments. Clusters
// contain the identities of endpoints, and the endpoints of DNS services. Headless services have clusters and listeners
// for their endpoints, which are in name tables. Clusters that connect to the called address depend on whether all
// endpoints accept mutual TLS.
func (b *dirtyBuilder) beyondAssignments(old snapshot.ServiceEndpoints) bool {
	is := b.index.Endpoints(old.ServiceKey)
	if old.Identities != is.Identities {
		return true
	}
	for in := range variants(b.index.Service(old.ServiceKey)) {
		switch {
		case (in.Headless || b.index.passing > 0) && old.TLS != is.TLS, in.Headless && !sameNames(old.List, is.List), !in.Headless &&
			in.Resolution != registry.ClientSide:
			return true
		}
	}
	return false
}

// sameNames reports whether the listeners of a headless service, one for each address, and its lines in name tables
// stay the same. A name table omits endpoints of other networks.
func sameNames(a, b []*registry.Endpoint) bool {
	return slices.EqualFunc(a, b, func(x, y *registry.Endpoint) bool {
		return x.Address == y.Address && x.ServicePort == y.ServicePort && x.HostName == y.HostName && x.SubDomain == y.SubDomain &&
			x.Network == y.Network && x.Health == y.Health && x.SameCluster == y.SameCluster && (!x.SameCluster || x.Cluster == y.Cluster)
	})
}

// embedsEndpoints reports whether a service's endpoints are part of more than its assignments.
func (x *Index) embedsEndpoints(k registry.ServiceKey) bool {
	return lists.Any(variants(x.Service(k)), func(s *registry.Service) bool { return s.Resolution != registry.ClientSide || s.Headless })
}

// ReachedPerEndpoint reports whether a service is reached only at the known addresses of its endpoints, because it has
// no addresses of its own.
func ReachedPerEndpoint(s *registry.Service) bool {
	return s.Headless || s.Resolution == registry.Passthrough && s.Selector != nil && len(s.Addresses) == 0
}

// variants calls yield with a service, and with each cluster's version of it.
func variants(s *registry.Service) func(yield func(*registry.Service) bool) {
	return func(yield func(*registry.Service) bool) {
		if s == nil || !yield(s) {
			return
		}
		for _, in := range s.Clusters {
			if !yield(in) {
				return
			}
		}
	}
}

// hasAddress reports whether an address is a service's own in some cluster.
func hasAddress(s *registry.Service, address string) bool {
	return lists.Any(variants(s), func(in *registry.Service) bool {
		return slices.Contains(in.Addresses, address) || slices.Contains(in.AutoAddress, address)
	})
}

// listensAt reports whether a listener for a service may be at an address: its own, or one of its endpoints.
func listensAt(s *registry.Service, address string) bool {
	return lists.Any(variants(s), ReachedPerEndpoint) || hasAddress(s, address)
}

// onWildcard reports whether the listener of a service's port may be at the wildcard address.
func onWildcard(s *registry.Service, p *registry.Port) bool {
	if p.Protocol.IsHTTP() {
		return true
	}
	for in := range variants(s) {
		if len(in.Addresses) == 0 || slices.ContainsFunc(in.Addresses, func(a string) bool { return strings.Contains(a, "/") }) {
			return true
		}
	}
	return false
}

// locatedByEndpoints reports whether a service is found by the addresses of its endpoints.
func locatedByEndpoints(s *registry.Service) bool {
	return lists.Any(variants(s), func(in *registry.Service) bool { return in.Selector == nil || ReachedPerEndpoint(in) })
}

// servedByAddress reports whether any workload at the address of an endpoint serves a service, whatever its labels.
func servedByAddress(s *registry.Service) bool {
	return lists.Any(variants(s), func(in *registry.Service) bool { return in.Selector == nil })
}

// addresses returns the locations of a service, see location.
func addresses(s *registry.Service, eps *snapshot.Endpoints) []string {
	var list []string
	for in := range variants(s) {
		list = append(append(list, in.Addresses...), in.AutoAddress...)
	}
	if locatedByEndpoints(s) {
		for _, e := range eps.List {
			list = append(list, e.Address)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
