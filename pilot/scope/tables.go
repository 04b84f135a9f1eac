package scope

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// tables hold services and routing objects in the orders in which they are looked up. An Index shares unchanged parts
// with the one before.
type tables struct {
	rules             frozen.Table[rule]          // DestinationRules by namespace and host, then precedence
	partialRules      frozen.Table[rule]          // those whose host is partial
	rulesWithSelector frozen.Table[*kinds.Object] // those with a workload selector: by namespace, then precedence

	virtualServices     frozen.Table[*VirtualService] // by namespace and name
	mesh                frozen.Table[*VirtualService] // those bound to sidecars, by precedence
	meshHosts           frozen.Table[link]            // of mesh: by host
	partialMeshHosts    frozen.Table[link]            // of meshHosts: the partial patterns
	meshDestinations    frozen.Table[link]            // of mesh: by the host of a destination
	gatewayHosts        frozen.Table[gatewayHost]     // those bound to Gateways: by Gateway and host
	partialGatewayHosts frozen.Table[gatewayHost]     // of gatewayHosts: the partial patterns
	gatewayDestinations frozen.Table[link]            // those bound to Gateways: by the host of a destination
	withSourceLabels    frozen.Table[*VirtualService] // those with a match on source labels, by precedence
	delegations         frozen.Table[delegation]      // by delegate

	ports      frozen.Table[port]     // services by port and protocol
	aliasPorts frozen.Table[port]     // the same of aliases
	locations  frozen.Table[location] // by address
	selectors  frozen.Table[selector] // by namespace and one of the labels of their selector
	aliases    frozen.Table[alias]    // by target

	nodeLocal, trafficDistribution int // how many services are node-local, and how many prefer close endpoints
}

func newTables() tables {
	return tables{
		rules: frozen.NewTable(compareRules), partialRules: frozen.NewTable(compareRules), rulesWithSelector: frozen.NewTable(compareByNamespace),
		virtualServices: frozen.NewTable(compareByName), mesh: frozen.NewTable(compareByPrecedence), withSourceLabels: frozen.NewTable(compareByPrecedence),
		meshHosts: frozen.NewTable(compareLinks), partialMeshHosts: frozen.NewTable(compareLinks), meshDestinations: frozen.NewTable(compareLinks), gatewayHosts: frozen.NewTable(compareGatewayHosts), partialGatewayHosts: frozen.NewTable(compareGatewayHosts), gatewayDestinations: frozen.NewTable(compareLinks),
		delegations: frozen.NewTable(compareDelegations),
		ports:       frozen.NewTable(comparePorts), aliasPorts: frozen.NewTable(comparePorts), locations: frozen.NewTable(compareLocations), selectors: frozen.NewTable(compareSelectors), aliases: frozen.NewTable(compareAliases),
	}
}

// rule is a DestinationRule with its qualified host.
type rule struct {
	host string
	*kinds.Object
}

func compareRules(a, b rule) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(a.host, b.host); c != 0 {
		return c
	}
	return snapshot.ByPrecedence(a.Object, b.Object)
}

func compareByNamespace(a, b *kinds.Object) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), snapshot.ByPrecedence(a, b))
}

func compareByName(a, b *VirtualService) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func compareByPrecedence(a, b *VirtualService) int { return snapshot.ByPrecedence(a.Object, b.Object) }

// link connects a name with a VirtualService.
type link struct {
	name string
	*VirtualService
}

func compareLinks(a, b link) int {
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	return compareByPrecedence(a.VirtualService, b.VirtualService)
}

func withName(name string) func(link) int {
	return func(l link) int { return strings.Compare(l.name, name) }
}

// gatewayHost connects a Gateway, "ns/name", and a host with a VirtualService that is bound to the Gateway and has the
// host.
type gatewayHost struct {
	gateway, host string
	*VirtualService
}

func compareGatewayHosts(a, b gatewayHost) int {
	if c := strings.Compare(a.gateway, b.gateway); c != 0 {
		return c
	}
	if c := strings.Compare(a.host, b.host); c != 0 {
		return c
	}
	return compareByPrecedence(a.VirtualService, b.VirtualService)
}

// delegation connects a delegate, "ns/name", with a VirtualService that delegates to it.
type delegation struct {
	delegate string
	root     kinds.Key
}

func compareDelegations(a, b delegation) int {
	return cmp.Or(strings.Compare(a.delegate, b.delegate), strings.Compare(a.root.Namespace, b.root.Namespace), strings.Compare(a.root.Name, b.root.Name))
}

// port is one port of a service.
type port struct {
	*registry.Port
	service *registry.Service
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

// location is a service at an address: its own address, or that of an endpoint for a service that is found by
// endpoints.
type location struct {
	address string
	service *registry.Service
}

func compareLocations(a, b location) int {
	if c := strings.Compare(a.address, b.address); c != 0 {
		return c
	}
	return snapshot.ByServicePrecedence(a.service, b.service)
}

// selector is a service with one of the labels of its selector.
type selector struct {
	key, value string
	service    *registry.Service
}

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

// alias is a service that is another name of a host.
type alias struct {
	target  string
	service *registry.Service
}

func compareAliases(a, b alias) int {
	return cmp.Or(strings.Compare(a.target, b.target), snapshot.ByServicePrecedence(a.service, b.service))
}

// ReachedPerEndpoint reports whether a service is reached only at the addresses of its endpoints, which are known.
func ReachedPerEndpoint(s *registry.Service) bool {
	return s.Headless || s.Resolution == registry.Passthrough && s.Selector != nil
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
	for in := range variants(s) {
		if slices.Contains(in.Addresses, address) || slices.Contains(in.AutoAddress, address) {
			return true
		}
	}
	return false
}

// listensAt reports whether a listener for a service may be at an address: its own, or one of its endpoints.
func listensAt(s *registry.Service, address string) bool {
	for in := range variants(s) {
		if ReachedPerEndpoint(in) {
			return true
		}
	}
	return hasAddress(s, address)
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
	for in := range variants(s) {
		if in.Selector == nil || ReachedPerEndpoint(in) {
			return true
		}
	}
	return false
}

// addresses returns where a service is, see location.
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

// putOrDelete puts an item into a table, or deletes it.
func putOrDelete[T any](t *frozen.Table[T], e *frozen.Edit, add bool, x T) {
	if add {
		t.Put(e, x)
	} else {
		t.Delete(e, x)
	}
}

// setService adds a service, with its endpoints, to the tables, or removes it.
func (t *tables) setService(e *frozen.Edit, s *registry.Service, eps *snapshot.Endpoints, add bool) {
	if s == nil {
		return
	}
	ports := &t.ports
	if s.Resolution == registry.Alias { // its listeners are those of its target
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
}

// setRule adds a DestinationRule to the tables, or removes it.
func (t *tables) setRule(e *frozen.Edit, r rule, add bool) {
	putOrDelete(&t.rules, e, add, r)
	if IsPartial(r.host) {
		putOrDelete(&t.partialRules, e, add, r)
	}
	if len(r.Spec.(*networkingv1.DestinationRule).GetWorkloadSelector().GetMatchLabels()) > 0 {
		putOrDelete(&t.rulesWithSelector, e, add, r.Object)
	}
}

// setVirtualService adds a VirtualService to the tables, or removes it.
func (t *tables) setVirtualService(e *frozen.Edit, v *VirtualService, add bool) {
	putOrDelete(&t.virtualServices, e, add, v)
	for _, d := range v.delegates {
		putOrDelete(&t.delegations, e, add, delegation{d, v.Key})
	}
	if v.hasSourceLabels() {
		putOrDelete(&t.withSourceLabels, e, add, v)
	}
	for _, g := range v.Gateways {
		if g != "mesh" {
			for _, h := range v.Hosts {
				putOrDelete(&t.gatewayHosts, e, add, gatewayHost{g, h, v})
				if IsPartial(h) {
					putOrDelete(&t.partialGatewayHosts, e, add, gatewayHost{g, h, v})
				}
			}
			for _, h := range v.DestinationHosts {
				putOrDelete(&t.gatewayDestinations, e, add, link{h, v})
			}
			continue
		}
		putOrDelete(&t.mesh, e, add, v)
		for _, h := range v.Hosts {
			putOrDelete(&t.meshHosts, e, add, link{h, v})
			if IsPartial(h) {
				putOrDelete(&t.partialMeshHosts, e, add, link{h, v})
			}
		}
		for _, h := range v.DestinationHosts {
			putOrDelete(&t.meshDestinations, e, add, link{h, v})
		}
	}
}
