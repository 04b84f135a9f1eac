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

// tables order services and routing objects by what they are looked up by. Each Index shares with the one before what is the same.
type tables struct {
	rules        frozen.Table[rule]          // DestinationRules by namespace and host, then precedence
	partialRules frozen.Table[rule]          // those whose host is Partial
	selecting    frozen.Table[*kinds.Object] // those with a workload selector: by namespace, then precedence

	virtual        frozen.Table[*VirtualService] // by namespace and name
	mesh           frozen.Table[*VirtualService] // those bound to sidecars, by precedence
	bound          frozen.Table[link]            // of mesh: by host
	partials       frozen.Table[link]            // of bound: by hosts that are Partial
	reached        frozen.Table[link]            // of mesh: by the host of a destination
	entries        frozen.Table[entry]           // those bound to Gateways: by Gateway and host
	partialEntries frozen.Table[entry]           // of entries: by hosts that are Partial
	behind         frozen.Table[link]            // of entries: by the host of a destination
	sourced        frozen.Table[*VirtualService] // those with a match on source labels, by precedence
	roots          frozen.Table[delegation]      // by whom they delegate to

	ports     frozen.Table[port]     // services by port and protocol
	aliased   frozen.Table[port]     // the same of services that are other names
	located   frozen.Table[location] // by address
	selectors frozen.Table[selector] // by namespace and one of the labels that they select by
	aliases   frozen.Table[alias]    // by the name that they stand for

	nodeLocal, distributed int // how many services are called on the caller's own node alone, or prefer what is close
}

func newTables() tables {
	return tables{
		rules: frozen.NewTable(compareRules), partialRules: frozen.NewTable(compareRules), selecting: frozen.NewTable(compareSelecting),
		virtual: frozen.NewTable(compareVirtual), mesh: frozen.NewTable(compareMesh), sourced: frozen.NewTable(compareMesh),
		bound: frozen.NewTable(compareLinks), partials: frozen.NewTable(compareLinks), reached: frozen.NewTable(compareLinks), entries: frozen.NewTable(compareEntries), partialEntries: frozen.NewTable(compareEntries), behind: frozen.NewTable(compareLinks),
		roots: frozen.NewTable(compareDelegations),
		ports: frozen.NewTable(comparePorts), aliased: frozen.NewTable(comparePorts), located: frozen.NewTable(compareLocations), selectors: frozen.NewTable(compareSelectors), aliases: frozen.NewTable(compareAliases),
	}
}

// rule is a DestinationRule by its qualified host.
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

func compareSelecting(a, b *kinds.Object) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), snapshot.ByPrecedence(a, b))
}

func compareVirtual(a, b *VirtualService) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func compareMesh(a, b *VirtualService) int { return snapshot.ByPrecedence(a.Object, b.Object) }

// link leads from a name to a VirtualService.
type link struct {
	name string
	*VirtualService
}

func compareLinks(a, b link) int {
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	return compareMesh(a.VirtualService, b.VirtualService)
}

func linked(name string) func(link) int {
	return func(l link) int { return strings.Compare(l.name, name) }
}

// entry leads from a Gateway, "ns/name", and a host to a VirtualService that is bound to the one and names the other.
type entry struct {
	gateway, host string
	*VirtualService
}

func compareEntries(a, b entry) int {
	if c := strings.Compare(a.gateway, b.gateway); c != 0 {
		return c
	}
	if c := strings.Compare(a.host, b.host); c != 0 {
		return c
	}
	return compareMesh(a.VirtualService, b.VirtualService)
}

// delegation leads from a VirtualService, "ns/name", to one that delegates to it.
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

// location is a service at an address: one of its own or, where it is its endpoints alone that say where it is, of theirs.
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

// selector is a service by one of the labels that it selects by.
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

// alias is a service that is another name.
type alias struct {
	target  string
	service *registry.Service
}

func compareAliases(a, b alias) int {
	return cmp.Or(strings.Compare(a.target, b.target), snapshot.ByServicePrecedence(a.service, b.service))
}

// ReachedPerEndpoint tells a service that is reached at the addresses of its endpoints alone, which are known.
func ReachedPerEndpoint(s *registry.Service) bool {
	return s.Headless || s.Resolution == registry.Passthrough && s.Selector != nil
}

// variants calls yield with a service and as each cluster has it.
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

// locatedByEndpoints tells a service that is found by the addresses of its endpoints.
func locatedByEndpoints(s *registry.Service) bool {
	for in := range variants(s) {
		if in.Selector == nil || ReachedPerEndpoint(in) {
			return true
		}
	}
	return false
}

// addresses lists where a service is, as location says.
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

// putOrDelete enters something in a table, or takes it out.
func putOrDelete[T any](t *frozen.Table[T], e *frozen.Edit, comes bool, x T) {
	if comes {
		t.Put(e, x)
	} else {
		t.Delete(e, x)
	}
}

// service enters a service, with its endpoints, or takes it out.
func (t *tables) service(e *frozen.Edit, s *registry.Service, eps *snapshot.Endpoints, comes bool) {
	if s == nil {
		return
	}
	ports := &t.ports
	if s.Resolution == registry.Alias { // at what it stands for is where listeners are
		ports = &t.aliased
	}
	for i := range s.Ports {
		putOrDelete(ports, e, comes, port{&s.Ports[i], s})
	}
	for _, a := range addresses(s, eps) {
		putOrDelete(&t.located, e, comes, location{a, s})
	}
	for in := range variants(s) {
		if len(in.Selector) > 0 {
			least := ""
			for k := range in.Selector {
				if least == "" || k < least {
					least = k
				}
			}
			putOrDelete(&t.selectors, e, comes, selector{least, in.Selector[least], s})
		}
	}
	if s.Resolution == registry.Alias {
		putOrDelete(&t.aliases, e, comes, alias{s.ExternalName, s})
	}
	n := -1
	if comes {
		n = 1
	}
	if s.NodeLocal {
		t.nodeLocal += n
	}
	if s.TrafficDist != "" {
		t.distributed += n
	}
}

// rule enters a DestinationRule, or takes it out.
func (t *tables) rule(e *frozen.Edit, r rule, comes bool) {
	putOrDelete(&t.rules, e, comes, r)
	if IsPartial(r.host) {
		putOrDelete(&t.partialRules, e, comes, r)
	}
	if len(r.Spec.(*networkingv1.DestinationRule).GetWorkloadSelector().GetMatchLabels()) > 0 {
		putOrDelete(&t.selecting, e, comes, r.Object)
	}
}

// virtualService enters a VirtualService, or takes it out.
func (t *tables) virtualService(e *frozen.Edit, v *VirtualService, comes bool) {
	putOrDelete(&t.virtual, e, comes, v)
	for _, d := range v.delegates {
		putOrDelete(&t.roots, e, comes, delegation{d, v.Key})
	}
	if v.sourced() {
		putOrDelete(&t.sourced, e, comes, v)
	}
	for _, g := range v.Gateways {
		if g != "mesh" {
			for _, h := range v.Hosts {
				putOrDelete(&t.entries, e, comes, entry{g, h, v})
				if IsPartial(h) {
					putOrDelete(&t.partialEntries, e, comes, entry{g, h, v})
				}
			}
			for _, h := range v.DestinationHosts {
				putOrDelete(&t.behind, e, comes, link{h, v})
			}
			continue
		}
		putOrDelete(&t.mesh, e, comes, v)
		for _, h := range v.Hosts {
			putOrDelete(&t.bound, e, comes, link{h, v})
			if IsPartial(h) {
				putOrDelete(&t.partials, e, comes, link{h, v})
			}
		}
		for _, h := range v.DestinationHosts {
			putOrDelete(&t.reached, e, comes, link{h, v})
		}
	}
}
