package scope

import (
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Scope is what the proxies of one namespace, under one Sidecar, may see.
type Scope struct {
	Index     *Index
	Namespace string
	Sidecar   *kinds.Object // nil: everything that is exported to the namespace
	Egress    []Egress      // how services are reached: one for each egress listener of the Sidecar; without one, a single catch-all

	services []Service
	byHost   map[string]*registry.Service
}

// Service is a service with those of its ports that are imported.
type Service struct {
	*registry.Service
	only []uint32 // the ports that egress listeners import; nil: all
}

// Imported calls yield for each imported port.
func (s Service) Imported(yield func(*registry.Port) bool) {
	for i := range s.Service.Ports {
		if p := &s.Service.Ports[i]; (s.only == nil || slices.Contains(s.only, p.Number)) && !yield(p) {
			return
		}
	}
}

// Egress is one way out: a listener of its own, or the catch-all.
type Egress struct {
	Listener        *networkingv1.IstioEgressListener // nil without Sidecar
	Services        []Service                         // by precedence
	VirtualServices []*VirtualService                 // by precedence
}

type scopeKey struct {
	namespace string
	sidecar   *kinds.Object
}

// Of gives the scope of a namespace and of the Sidecar that is in force there.
func (x *Index) Of(namespace string, sidecar *kinds.Object) *Scope {
	k := scopeKey{namespace, sidecar}
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.scopes[k]; s != nil {
		return s
	}
	s := &Scope{Index: x, Namespace: namespace, Sidecar: sidecar}
	if spec := sidecarSpec(sidecar); spec == nil || len(spec.Egress) == 0 {
		s.Egress = []Egress{{Services: s.exportedServices(), VirtualServices: s.exportedVirtualServices()}}
	} else {
		s.importHosts(spec)
	}
	s.collect()
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

// Services gives every imported service by precedence, one for each host. The caller must not change the slice.
func (s *Scope) Services() []Service { return s.services }

// ServiceByHost gives the imported service of that host, or nil.
func (s *Scope) ServiceByHost(host string) *registry.Service { return s.byHost[host] }

// exportedServices gives one service for each host: of several namespaces' the proxy's own first, then by precedence.
func (s *Scope) exportedServices() []Service {
	return slices.DeleteFunc(s.visibleServices(), func(svc Service) bool { return !s.preferred(svc.Service) })
}

func (s *Scope) visible(svc *registry.Service) bool {
	return exported(svc.ExportTo, s.Index.Mesh.GetDefaultServiceExportTo(), svc.Namespace, s.Namespace)
}

// preferred tells that svc is the one that its host means in this namespace.
func (s *Scope) preferred(svc *registry.Service) bool {
	var first *registry.Service
	for _, o := range s.Index.ServicesByHost(svc.Host) {
		if !s.visible(o) {
			continue
		}
		if o.Namespace == s.Namespace {
			return o == svc
		}
		if first == nil {
			first = o
		}
	}
	return first == svc
}

func (s *Scope) exportedVirtualServices() []*VirtualService {
	var all []*VirtualService
	for _, v := range s.Index.mesh {
		if exported(v.Spec.ExportTo, s.Index.Mesh.GetDefaultVirtualServiceExportTo(), v.Namespace, s.Namespace) {
			all = append(all, v)
		}
	}
	return all
}

// importHosts applies a Sidecar's egress listeners.
func (s *Scope) importHosts(spec *networkingv1.Sidecar) {
	services, virtual := s.visibleServices(), s.exportedVirtualServices()
	for _, l := range spec.Egress {
		e := Egress{Listener: l}
		hosts := parseHosts(l.Hosts, s.Namespace)
		seen := map[string]int{}
		for _, svc := range services {
			if !hosts.cover(svc.Namespace, svc.Host) {
				continue
			}
			if port := l.GetPort().GetNumber(); port != 0 {
				if svc.Port(port) == nil {
					continue
				}
				svc.only = []uint32{port}
			}
			if i, ok := seen[svc.Host]; ok {
				if svc.Namespace == s.Namespace {
					e.Services[i] = svc
				}
				continue
			}
			seen[svc.Host] = len(e.Services)
			e.Services = append(e.Services, svc)
		}
		for _, v := range virtual {
			if slices.ContainsFunc(v.Hosts, func(h string) bool { return hosts.overlap(v.Namespace, h) }) {
				e.VirtualServices = append(e.VirtualServices, v)
			}
		}
		s.Egress = append(s.Egress, e)
	}
}

func (s *Scope) visibleServices() []Service {
	var all []Service
	for _, svc := range s.Index.Services() {
		if s.visible(svc) {
			all = append(all, Service{Service: svc})
		}
	}
	return all
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

// collect gathers the services of all egress listeners, and those that imported VirtualServices send traffic to.
func (s *Scope) collect() {
	at := map[string]int{}
	add := func(svc Service) {
		i, ok := at[svc.Host]
		if !ok {
			at[svc.Host] = len(s.services)
			s.services = append(s.services, svc)
			return
		}
		have := &s.services[i]
		if have.only == nil || svc.only == nil {
			have.only = nil
			return
		}
		have.only = append(slices.Clip(have.only), svc.only...)
	}
	for _, e := range s.Egress {
		for _, svc := range e.Services {
			add(svc)
		}
	}
	if s.Sidecar != nil {
		for _, e := range s.Egress {
			for _, v := range e.VirtualServices {
				for host, port := range Destinations(v.Spec) {
					host = names.FQDN(host, v.Namespace, s.Index.Domain)
					svc := s.implied(host, v.Namespace)
					if i, ok := at[host]; ok {
						svc = s.services[i].Service
					}
					if svc == nil {
						continue
					}
					imported := Service{Service: svc}
					if port != 0 {
						imported.only = []uint32{port}
					}
					add(imported)
				}
			}
		}
	}
	s.byHost = make(map[string]*registry.Service, len(s.services))
	for _, svc := range s.services {
		s.byHost[svc.Host] = svc.Service
	}
}

// implied finds the service that a VirtualService of namespace ns means by host.
func (s *Scope) implied(host, ns string) *registry.Service {
	var found *registry.Service
	for _, svc := range s.Index.ServicesByHost(host) {
		if s.visible(svc) && (found == nil || svc.Namespace == ns && found.Namespace != ns) {
			found = svc
		}
	}
	return found
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
		if sel := sidecarSpec(o).GetWorkloadSelector().GetLabels(); len(sel) > 0 && Selects(sel, labels) {
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
