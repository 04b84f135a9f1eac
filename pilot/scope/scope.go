package scope

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Scope is the set of hosts that the proxies of one namespace, under one Sidecar, may see. It stores no lists: it looks
// up one host at a time in the Index.
type Scope struct {
	index     *Index
	Namespace string
	Sidecar   *kinds.Object // nil if everything that is exported to the namespace is visible
	// Egress has one entry for each egress listener of the Sidecar, or else a single catch-all.
	Egress []Egress
}

// Service is a service with the ports of it that are imported.
type Service struct {
	*registry.Service
	importedPorts []uint32 // sorted; nil for all ports
}

// ImportedPorts calls yield for each imported port.
func (s Service) ImportedPorts(yield func(*registry.Port) bool) {
	for i := range s.Service.Ports {
		if p := &s.Service.Ports[i]; s.imports(p.Number) && !yield(p) {
			return
		}
	}
}

// ImportedPortsByNumber returns the imported ports of that number.
func (s Service) ImportedPortsByNumber(number uint32) iter.Seq[*registry.Port] {
	if !s.imports(number) {
		return func(func(*registry.Port) bool) {}
	}
	return s.PortsByNumber(number)
}

func (s Service) imports(number uint32) bool {
	if s.importedPorts == nil {
		return true
	}
	_, ok := slices.BinarySearch(s.importedPorts, number)
	return ok
}

// Egress is an egress listener of a Sidecar, or the catch-all.
type Egress struct {
	Listener  *networkingv1.IstioEgressListener // nil without a Sidecar
	HTTPProxy bool                              // whether it is an HTTP proxy, which takes requests for all ports of its services
	scope     *Scope
	hosts     *names.EgressHosts // nil if all visible hosts are imported
	// overlapCache caches, for VirtualServices with many hosts, whether hosts overlap with any of its hosts.
	overlapCache *sync.Map
}

type scopeKey struct {
	namespace string
	sidecar   *kinds.Object
}

// ScopeOf returns the scope of a namespace and of the Sidecar that applies there.
func (x *Index) ScopeOf(namespace string, sidecar *kinds.Object) *Scope {
	k := scopeKey{namespace, sidecar}
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.scopes[k]; s != nil {
		return s
	}
	s := &Scope{index: x, Namespace: namespace, Sidecar: sidecar}
	if spec := sidecarSpec(sidecar); spec != nil {
		for _, l := range spec.Egress {
			proxy := protocols.Parse(l.GetPort().GetProtocol()) == protocols.HTTPProxy
			s.Egress = append(s.Egress, Egress{Listener: l, HTTPProxy: proxy, scope: s, hosts: names.ParseEgressHosts(l.Hosts, namespace),
				overlapCache: &sync.Map{}})
		}
	}
	if len(s.Egress) == 0 {
		s.Egress = []Egress{{scope: s}}
	}
	x.scopes[k] = s
	return s
}

func sidecarSpec(o *kinds.Object) *networkingv1.Sidecar {
	if o == nil {
		return nil
	}
	return o.Spec.(*networkingv1.Sidecar)
}

// Spec returns the Sidecar's spec, or nil.
func (s *Scope) Spec() *networkingv1.Sidecar { return sidecarSpec(s.Sidecar) }

// ResolveAlias returns the service of a host, following aliases, or nil if there is none.
func (s *Scope) ResolveAlias(host string) *registry.Service {
	var last *registry.Service
	target := func(host string) string {
		if last = s.ServiceByHost(host); last != nil && last.Resolution == registry.Alias {
			return last.ExternalName
		}
		return ""
	}
	if names.FollowAliases(host, target) == "" {
		return nil
	}
	return last
}

// Aliases returns the ExternalName services that are aliases of a service, by precedence.
func (s *Scope) Aliases(of *registry.Service) []*registry.Service {
	var found []*registry.Service
	s.index.Aliases(of.Host, func(a *registry.Service) {
		if s.ServiceByHost(a.Host) == a && s.ResolveAlias(a.Host) == of {
			found = append(found, a)
		}
	})
	slices.SortFunc(found, snapshot.ByServicePrecedence)
	return found
}

// Services calls yield for every imported service by precedence, once for each host.
func (s *Scope) Services(yield func(Service) bool) {
	for svc := range s.index.EachService {
		if !s.visible(svc) {
			continue
		}
		if of, ok := s.Service(svc.Host); ok && of.Service == svc && !yield(of) {
			return
		}
	}
}

// Service returns the imported service of a host. Egress listeners import services. Under a Sidecar, imported
// VirtualServices import their destinations too: a listener with a port imports that port of them, even if the routes
// lead to another.
func (s *Scope) Service(host string) (Service, bool) {
	var all Service
	add := func(svc Service) {
		switch {
		case all.Service == nil:
			all = svc
		case all.importedPorts == nil || svc.importedPorts == nil:
			all.importedPorts = nil
		default:
			all.importedPorts = append(all.importedPorts, svc.importedPorts...)
		}
	}
	for i := range s.Egress {
		if svc, ok := s.Egress[i].Service(host); ok {
			add(svc)
		}
	}
	if s.Sidecar != nil && (all.Service == nil || all.importedPorts != nil) && s.destinationService(host, s.Namespace) != nil {
		for i := range s.Egress {
			port := s.Egress[i].port()
			if port != 0 && slices.Contains(all.importedPorts, port) {
				continue
			}
			for l := range s.index.meshDestinations.Where(withName(host)) {
				if !s.Egress[i].imports(l.VirtualService) {
					continue
				}
				svc := all.Service
				if svc == nil {
					svc = s.destinationService(host, l.Namespace)
				}
				if port != 0 {
					if svc.Port(port) == nil {
						continue
					}
					add(Service{svc, []uint32{port}})
					break // the other VirtualServices import the same
				}
				for _, d := range l.ports(host) {
					imported := Service{Service: svc}
					if d.port != 0 {
						imported.importedPorts = []uint32{d.port}
					}
					add(imported)
				}
			}
		}
	}
	slices.Sort(all.importedPorts)
	return all, all.Service != nil
}

// ServiceByHost returns the imported service of a host, or nil.
func (s *Scope) ServiceByHost(host string) *registry.Service {
	svc, _ := s.Service(host)
	return svc.Service
}

func (s *Scope) visible(svc *registry.Service) bool {
	return serviceExported(svc.ExportTo, s.index.Mesh.GetDefaultServiceExportTo(), svc.Namespace, s.Namespace)
}

// destinationService returns the service for a host in a VirtualService of namespace ns.
func (s *Scope) destinationService(host, ns string) *registry.Service {
	var found *registry.Service
	for svc := range s.index.ServicesByHost(host) {
		if s.visible(svc) && (found == nil || svc.Namespace == ns && found.Namespace != ns) {
			found = svc
		}
	}
	return found
}

// Service returns the service for a host in this scope: the one in the proxy's own namespace, or else the first by
// precedence.
func (e *Egress) Service(host string) (Service, bool) {
	var found Service
	for svc := range e.scope.index.ServicesByHost(host) {
		own := svc.Namespace == e.scope.Namespace
		if found.Service != nil && !own || !e.scope.visible(svc) || e.hosts != nil && !e.hosts.Covers(svc.Namespace, host) {
			continue
		}
		of := Service{Service: svc}
		if port := e.port(); port != 0 {
			if svc.Port(port) == nil {
				continue
			}
			of.importedPorts = []uint32{port}
		}
		if found = of; own {
			break
		}
	}
	return found, found.Service != nil
}

// port returns the only port of services that a listener imports, or 0 for all.
func (e *Egress) port() uint32 {
	if e.HTTPProxy {
		return 0
	}
	return e.Listener.GetPort().GetNumber()
}

// Services calls yield for each imported service that has a port, by precedence.
func (e *Egress) Services(yield func(Service) bool) {
	for svc := range e.scope.index.ServicesMatching(func(s *registry.Service) bool { return len(s.Ports) > 0 }) {
		if of, ok := e.imported(svc); ok && !yield(of) {
			return
		}
	}
}

// imported returns a service with its imported ports, and reports whether it is the service of its host in this scope.
func (e *Egress) imported(svc *registry.Service) (Service, bool) {
	if !e.scope.visible(svc) {
		return Service{}, false
	}
	of, ok := e.Service(svc.Host)
	return of, ok && of.Service == svc
}

// ListeningOn returns, by precedence, the services that may affect the listeners of some keys. A key without an address
// matches any address. If routes tell services apart, the result has only the first service of each protocol, because
// the listener is the same for all of them.
func (e *Egress) ListeningOn(keys []ListenerKey) []Service {
	x := e.scope.index
	resolved := map[*registry.Service]bool{} // whether a service is the service of its host in this scope
	var found []Service
	add := func(svc *registry.Service) bool {
		is, ok := resolved[svc]
		if !ok {
			var of Service
			if of, is = e.imported(svc); is {
				found = append(found, of)
			}
			resolved[svc] = is
		}
		return is
	}
	for _, p := range keys {
		if p.Address == "" {
			e.eachOnPort(p, add)
			continue
		}
		relevant := func(l location) bool { return l.service.Port(p.Port) != nil && listensAt(l.service, l.address) }
		for l := range x.locations.Select(withAddress(p.Address), relevant) {
			add(l.service)
		}
	}
	slices.SortFunc(found, func(a, b Service) int { return snapshot.ByServicePrecedence(a.Service, b.Service) })
	return found
}

// eachOnPort calls add for services with a port of the listener's number, sorted by protocol. For an HTTP protocol, it
// stops at the first service for which add reports true. At the wildcard address it skips services that cannot be
// there.
func (e *Egress) eachOnPort(k ListenerKey, add func(*registry.Service) bool) {
	var after protocols.Protocol
	for started := false; ; started = true {
		var next *protocols.Protocol
		last := after
		onPort := func(p port) int {
			switch {
			case p.Number != k.Port:
				return cmp.Compare(p.Number, k.Port)
			case started && p.Protocol <= last:
				return -1
			}
			return 0
		}
		relevant := func(p port) bool { return !k.Wildcard || onWildcard(p.service, p.Port) }
		for p := range e.scope.index.ports.Select(onPort, relevant) {
			if next != nil && *next != p.Protocol {
				break
			}
			next = &p.Protocol
			// A Sidecar may set the protocol of its port, so all services matter there.
			if add(p.service) && p.Protocol.IsHTTP() && e.Listener.GetPort() == nil {
				break
			}
		}
		if next == nil {
			break
		}
		after = *next
	}
}

// VirtualServices calls yield for each imported VirtualService by age.
func (e *Egress) VirtualServices(yield func(*VirtualService) bool) {
	for v := range e.scope.index.mesh.All {
		if e.imports(v) && !yield(v) {
			return
		}
	}
}

// Sees reports whether a VirtualService is exported to the namespace, and whether the proxies import it.
func (s *Scope) Sees(k kinds.Key) (exported, imported bool) {
	v := s.index.virtualService(k)
	if v == nil {
		return false, false
	}
	return s.index.visibility(v, s.Namespace) != hidden, slices.ContainsFunc(s.Egress, func(e Egress) bool { return e.imports(v) })
}

// SeesService reports whether a service is exported to the namespace, and whether the proxies import a port of it: the
// Sidecar may not import it, and another service of the host may be nearer.
func (s *Scope) SeesService(svc *registry.Service, port uint32) (exported, imported bool) {
	of, ok := s.Service(svc.Host)
	return s.visible(svc), ok && of.Key() == svc.Key() && of.imports(port)
}

// Exclusion returns the field of the Sidecar that first excludes a host of a namespace, or "" if there is none.
func (s *Scope) Exclusion(namespace, host string) string {
	for i, l := range s.Spec().GetEgress() {
		for j, text := range l.GetHosts() {
			if names.ParseEgressHost(text, s.Namespace).Excludes(namespace, host) {
				return fmt.Sprintf("spec.egress[%d].hosts[%d]", i, j)
			}
		}
	}
	return ""
}

func (e *Egress) imports(v *VirtualService) bool {
	if e.scope.index.visibility(v, e.scope.Namespace) == hidden {
		return false
	}
	if e.hosts == nil {
		return true
	}
	large := len(v.Hosts) > 8
	if large {
		if known, ok := e.overlapCache.Load(v); ok {
			return known.(bool)
		}
	}
	overlap := slices.ContainsFunc(v.Hosts, func(h string) bool { return e.hosts.Overlaps(v.Namespace, h) })
	if large {
		e.overlapCache.Store(v, overlap)
	}
	return overlap
}

// VirtualServiceByHost returns the imported VirtualService whose HTTP routes apply to a host, written as in its spec,
// or nil if there is none. If there are several, it is the first by Index.CompareVirtualServices.
func (e *Egress) VirtualServiceByHost(host string) *VirtualService {
	var first *VirtualService
	best := hidden
	for l := range e.scope.index.meshHosts.Where(withName(host)) { // by age
		if len(l.Spec.Http) == 0 {
			continue
		}
		if seen := e.scope.index.visibility(l.VirtualService, e.scope.Namespace); seen < best && e.imports(l.VirtualService) {
			if first, best = l.VirtualService, seen; best == private {
				break
			}
		}
	}
	return first
}

// Destinations calls yield for each host that a VirtualService sends traffic to, as written, and the port, or 0 if
// there is none.
func Destinations(v *networkingv1.VirtualService) func(yield func(host string, port uint32) bool) {
	return func(yield func(string, uint32) bool) {
		to := func(d *networkingv1alpha3.Destination) bool {
			return d == nil || yield(d.Host, d.GetPort().GetNumber())
		}
		for _, h := range v.Http {
			for _, r := range h.Route {
				if !to(r.Destination) {
					return
				}
			}
			if !to(h.Mirror) {
				return
			}
			for _, m := range h.Mirrors {
				if !to(m.Destination) {
					return
				}
			}
		}
		for _, t := range v.Tls {
			for _, r := range t.Route {
				if !to(r.Destination) {
					return
				}
			}
		}
		for _, t := range v.Tcp {
			for _, r := range t.Route {
				if !to(r.Destination) {
					return
				}
			}
		}
	}
}

// SidecarFor returns the Sidecar that applies to a workload: one that selects it, or else its namespace's, or else the
// root namespace's, or nil if there is none. A workloadSelector without labels selects every workload, as in istiod.
// Only a Sidecar without a workloadSelector applies to its whole namespace.
func SidecarFor(x *Index, namespace string, labels registry.Labels) *kinds.Object {
	for _, o := range x.Objects(kinds.Sidecar, namespace) {
		if sel := sidecarSpec(o).GetWorkloadSelector(); sel != nil && labels.Match(sel.GetLabels()) {
			return o
		}
	}
	for _, ns := range []string{namespace, x.RootNamespace()} {
		for _, o := range x.Objects(kinds.Sidecar, ns) {
			if sidecarSpec(o).GetWorkloadSelector() == nil {
				return o
			}
		}
	}
	return nil
}
