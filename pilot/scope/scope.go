package scope

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Scope is what the proxies of one namespace, under one Sidecar, may see. It holds no list of it: each question is answered of the Index, about one host at a time.
type Scope struct {
	Index     *Index
	Namespace string
	Sidecar   *kinds.Object // nil: everything that is exported to the namespace
	Egress    []Egress      // how services are reached: one for each egress listener of the Sidecar; without one, a single catch-all
}

// Service is a service with those of its ports that are imported.
type Service struct {
	*registry.Service
	only []uint32 // the ports that egress listeners import, sorted; nil: all
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
	if s.only == nil {
		return true
	}
	_, ok := slices.BinarySearch(s.only, number)
	return ok
}

// Egress is one way out: a listener of its own, or the catch-all.
type Egress struct {
	Listener  *networkingv1.IstioEgressListener // nil without Sidecar
	HTTPProxy bool                              // it takes requests for all ports of its services, as an HTTP proxy
	scope     *Scope
	hosts     importedHosts // nil: all that is visible
	large     *sync.Map     // by VirtualServices with many hosts, each of which asks: whether hosts overlap with any of theirs
}

type scopeKey struct {
	namespace string
	sidecar   *kinds.Object
}

// ScopeOf gives the scope of a namespace and of the Sidecar that is in force there.
func (x *Index) ScopeOf(namespace string, sidecar *kinds.Object) *Scope {
	k := scopeKey{namespace, sidecar}
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.scopes[k]; s != nil {
		return s
	}
	s := &Scope{Index: x, Namespace: namespace, Sidecar: sidecar}
	if spec := sidecarSpec(sidecar); spec != nil {
		for _, l := range spec.Egress {
			proxy := registry.ParseProtocol(l.GetPort().GetProtocol()) == registry.HTTPProxy
			s.Egress = append(s.Egress, Egress{Listener: l, HTTPProxy: proxy, scope: s, hosts: parseHosts(l.Hosts, namespace), large: &sync.Map{}})
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

// Spec is the Sidecar's, or nil.
func (s *Scope) Spec() *networkingv1.Sidecar { return sidecarSpec(s.Sidecar) }

// Services calls yield for every imported service by precedence, one for each host.
func (s *Scope) Services(yield func(Service) bool) {
	for svc := range s.Index.EachService {
		if !s.visible(svc) {
			continue
		}
		if of, ok := s.Service(svc.Host); ok && of.Service == svc && !yield(of) {
			return
		}
	}
}

// Service gives the imported service of a host: what egress listeners import and, under a Sidecar, what imported VirtualServices send traffic to.
func (s *Scope) Service(host string) (Service, bool) {
	var all Service
	add := func(svc Service) {
		switch {
		case all.Service == nil:
			all = svc
		case all.only == nil || svc.only == nil:
			all.only = nil
		default:
			all.only = append(all.only, svc.only...)
		}
	}
	for i := range s.Egress {
		if svc, ok := s.Egress[i].Service(host); ok {
			add(svc)
		}
	}
	if s.Sidecar != nil && (all.Service == nil || all.only != nil) {
		for i := range s.Egress {
			for l := range s.Index.reached.Where(linked(host)) {
				if !s.Egress[i].imports(l.VirtualService) {
					continue
				}
				svc := all.Service
				if svc == nil {
					if svc = s.implied(host, l.Namespace); svc == nil {
						continue
					}
				}
				for _, d := range l.ports(host) {
					imported := Service{Service: svc}
					if d.port != 0 {
						imported.only = []uint32{d.port}
					}
					add(imported)
				}
			}
		}
	}
	slices.Sort(all.only)
	return all, all.Service != nil
}

// ServiceByHost gives the imported service of that host, or nil.
func (s *Scope) ServiceByHost(host string) *registry.Service {
	svc, _ := s.Service(host)
	return svc.Service
}

func (s *Scope) visible(svc *registry.Service) bool {
	return exported(svc.ExportTo, s.Index.Mesh.GetDefaultServiceExportTo(), svc.Namespace, s.Namespace)
}

// implied finds the service that a VirtualService of namespace ns means by host.
func (s *Scope) implied(host, ns string) *registry.Service {
	var found *registry.Service
	for svc := range s.Index.ServicesByHost(host) {
		if s.visible(svc) && (found == nil || svc.Namespace == ns && found.Namespace != ns) {
			found = svc
		}
	}
	return found
}

// Service gives the service that a host means here: of several namespaces' the proxy's own, else the first by precedence.
func (e *Egress) Service(host string) (Service, bool) {
	var found Service
	for svc := range e.scope.Index.ServicesByHost(host) {
		own := svc.Namespace == e.scope.Namespace
		if found.Service != nil && !own || !e.scope.visible(svc) || e.hosts != nil && !e.hosts.cover(svc.Namespace, host) {
			continue
		}
		of := Service{Service: svc}
		if port := e.Listener.GetPort().GetNumber(); port != 0 && !e.HTTPProxy {
			if svc.Port(port) == nil {
				continue
			}
			of.only = []uint32{port}
		}
		if found = of; own {
			break
		}
	}
	return found, found.Service != nil
}

// Services calls yield for each service by precedence.
func (e *Egress) Services(yield func(Service) bool) {
	for svc := range e.scope.Index.EachService {
		if of, ok := e.of(svc); ok && !yield(of) {
			return
		}
	}
}

// of tells whether a service is what its host means here.
func (e *Egress) of(svc *registry.Service) (Service, bool) {
	if !e.scope.visible(svc) {
		return Service{}, false
	}
	of, ok := e.Service(svc.Host)
	return of, ok && of.Service == svc
}

// ListeningOn returns, by precedence, the services that can make a difference to what listens at some places, at any address where a place has none: of those whose
// requests are told apart by routes the first of each protocol is enough, for to a listener all are one.
func (e *Egress) ListeningOn(places []ListenerKey) []Service {
	x := e.scope.Index
	looked := map[*registry.Service]bool{} // whether it is what its host means here
	var found []Service
	add := func(svc *registry.Service) bool {
		is, ok := looked[svc]
		if !ok {
			var of Service
			if of, is = e.of(svc); is {
				found = append(found, of)
			}
			looked[svc] = is
		}
		return is
	}
	for _, p := range places {
		if p.Address == "" {
			e.listening(p.Port, add)
			continue
		}
		for l := range x.located.Where(at(p.Address)) {
			add(l.service)
		}
	}
	slices.SortFunc(found, func(a, b Service) int { return snapshot.ByServicePrecedence(a.Service, b.Service) })
	return found
}

// listening calls add for services with a port of that number. The ports of a protocol are a run; after the first service that is added the rest of an HTTP one is
// passed over.
func (e *Egress) listening(number uint32, add func(*registry.Service) bool) {
	var after registry.Protocol
	for started := false; ; started = true {
		var next *registry.Protocol
		for p := range e.scope.Index.ports.Where(func(p port) int {
			switch {
			case p.Number != number:
				return cmp.Compare(p.Number, number)
			case started && p.Protocol <= after:
				return -1
			}
			return 0
		}) {
			if next != nil && *next != p.Protocol {
				break
			}
			next = &p.Protocol
			if add(p.service) && p.Protocol.IsHTTP() && e.Listener.GetPort() == nil { // a Sidecar may say that its port speaks something else
				break
			}
		}
		if next == nil {
			break
		}
		after = *next
	}
}

// VirtualServices calls yield for each that is imported, by precedence.
func (e *Egress) VirtualServices(yield func(*VirtualService) bool) {
	for v := range e.scope.Index.mesh.All {
		if e.imports(v) && !yield(v) {
			return
		}
	}
}

func (e *Egress) imports(v *VirtualService) bool {
	if !exported(v.Spec.ExportTo, e.scope.Index.Mesh.GetDefaultVirtualServiceExportTo(), v.Namespace, e.scope.Namespace) {
		return false
	}
	if e.hosts == nil {
		return true
	}
	large := len(v.Hosts) > 8
	if large {
		if known, ok := e.large.Load(v); ok {
			return known.(bool)
		}
	}
	overlap := slices.ContainsFunc(v.Hosts, func(h string) bool { return e.hosts.overlap(v.Namespace, h) })
	if large {
		e.large.Store(v, overlap)
	}
	return overlap
}

// VirtualServiceByHost gives the VirtualService whose HTTP routes are those of a host, as one of them writes it; nil if there is none.
func (e *Egress) VirtualServiceByHost(host string) *VirtualService {
	for l := range e.scope.Index.bound.Where(linked(host)) {
		if len(l.Spec.Http) > 0 && e.imports(l.VirtualService) {
			return l.VirtualService
		}
	}
	return nil
}

// importedHosts are the hosts of an egress listener by namespace; "*" is every namespace.
type importedHosts map[string][]string

func parseHosts(hosts []string, own string) importedHosts {
	m := importedHosts{}
	for _, h := range hosts {
		ns, host, ok := strings.Cut(h, "/")
		if !ok {
			ns, host = "*", h
		}
		switch ns {
		case ".":
			ns = own
		case "~":
			continue
		}
		m[ns] = append(m[ns], strings.ToLower(host))
	}
	return m
}

func (m importedHosts) any(ns string, match func(string) bool) bool {
	return slices.ContainsFunc(m[ns], match) || slices.ContainsFunc(m["*"], match)
}

func (m importedHosts) cover(ns, host string) bool {
	return m.any(ns, func(p string) bool { return names.Covers(p, host) })
}

func (m importedHosts) overlap(ns, host string) bool {
	return m.any(ns, func(p string) bool { return names.Overlap(p, host) })
}

// Destinations calls yield for each host that a VirtualService sends traffic to, as written, and the port there, 0 where it does not say.
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

// SidecarFor gives the Sidecar in force for a workload: one that selects it, then its namespace's, then the root namespace's. nil without any.
func SidecarFor(x *Index, namespace string, labels map[string]string) *kinds.Object {
	for _, o := range x.Objects(kinds.Sidecar, namespace) {
		if sel := sidecarSpec(o).GetWorkloadSelector().GetLabels(); len(sel) > 0 && kinds.Selects(sel, labels) {
			return o
		}
	}
	for _, ns := range []string{namespace, x.RootNamespace()} {
		for _, o := range x.Objects(kinds.Sidecar, ns) {
			if len(sidecarSpec(o).GetWorkloadSelector().GetLabels()) == 0 {
				return o
			}
		}
	}
	return nil
}
