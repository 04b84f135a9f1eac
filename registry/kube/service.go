package kube

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/registry"
)

const (
	annotationExportTo          = names.AnnotationExportTo
	annotationAccounts          = names.AnnotationAccounts
	annotationCanonicalAccounts = names.AnnotationCanonicalAccounts
)

// service is the state of one Service.
type service struct {
	object      *kinds.Object // nil if deleted in this batch
	stale       bool          // current must be made again
	current     *registry.Service
	families    family
	selectsPods bool // whether it selects pods itself, because it has no slices
	endpoints   []*registry.Endpoint
	notReady    int
}

func (r *Registry) applyService(n name, o *kinds.Object) {
	s := r.services[n]
	if s == nil {
		if o == nil {
			return
		}
		s = &service{}
		r.services[n] = s
	}
	s.object, s.stale = o, true
	r.indexSelector(n)
	r.dirty[n] = struct{}{}
}

// selectsPods reports whether a service selects its pods itself.
func (r *Registry) selectsPods(n name) bool { return !r.opts.Controllers && len(r.byService[n]) == 0 }

// indexSelector indexes the selector of a service: always for WorkloadEntries, and for pods while it has no slices.
func (r *Registry) indexSelector(n name) {
	s := r.services[n]
	s.selectsPods = r.selectsPods(n)
	var selector map[string]string
	if s.object != nil {
		if spec := &s.object.Spec.(*corev1.Service).Spec; spec.Type != corev1.ServiceTypeExternalName {
			selector = spec.Selector
		}
	}
	if r.indexed {
		r.entrySelectors.SetSelector(n, n.namespace, selector)
	}
	if !s.selectsPods {
		selector = nil
	}
	r.podSelectors.SetSelector(n, n.namespace, selector)
}

func (r *Registry) convert(o *kinds.Object) *registry.Service {
	spec := &o.Spec.(*corev1.Service).Spec
	s := &registry.Service{
		Host: r.host(name{o.Namespace, o.Name}), Namespace: o.Namespace, Name: o.Name, Object: o.Name,
		Provider: registry.Kubernetes, Labels: o.Labels, Selector: spec.Selector, Created: o.Created,
		ExportTo:        exportTo(o.Annotations[annotationExportTo]),
		PublishNotReady: spec.PublishNotReadyAddresses,
		NodeLocal:       spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		TrafficDist:     r.namespaces.TrafficDistribution(o.Namespace, o.Annotations, spec.TrafficDistribution),
		SendDraining:    names.HasPersistentSession(o.Labels),
	}
	for _, account := range splitList(o.Annotations[annotationAccounts]) {
		s.ServiceAccounts = append(s.ServiceAccounts, registry.SPIFFE(r.opts.TrustDomain, o.Namespace, account))
	}
	s.ServiceAccounts = append(s.ServiceAccounts, splitList(o.Annotations[annotationCanonicalAccounts])...)
	var ports []registry.Port
	for i := range spec.Ports {
		p := &spec.Ports[i]
		port := registry.Port{Name: p.Name, Number: uint32(p.Port), Protocol: protocols.OfPort(p)}
		if t := p.TargetPort.String(); t != "0" {
			port.TargetPort = t
		}
		ports = append(ports, port)
	}
	s.SetPorts(ports)
	if spec.Type == corev1.ServiceTypeExternalName {
		s.Resolution = registry.Alias
		s.ExternalName = names.ExternalName(spec.ExternalName)
		return s
	}
	ips := spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{spec.ClusterIP}
	}
	for _, ip := range ips {
		switch ip {
		case "":
		case corev1.ClusterIPNone:
			s.Headless, s.Resolution = true, registry.Passthrough
		default:
			s.Addresses = append(s.Addresses, ip)
		}
	}
	return s
}

// applyNamespace applies a change of a Namespace. It checks every service, or every workload, of the namespace or the
// cluster, because such changes are rare.
func (r *Registry) applyNamespace(c kinds.Change) {
	network, traffic := r.namespaces.Apply(c)
	if network {
		for n, p := range r.pods {
			r.relocate(n, p)
		}
		for _, sl := range r.slices {
			r.markSliceDirty(sl)
		}
	}
	if !traffic {
		return
	}
	for n, s := range r.services {
		if n.namespace == c.Name {
			s.stale = true
			r.markDirty(n)
		}
	}
}

func (r *Registry) markDirty(n name) { r.dirty[n] = struct{}{} }

// exportTo parses the namespaces of an annotation. An annotation with text but without a namespace makes the service
// visible nowhere.
func exportTo(annotation string) []string {
	list := splitList(annotation)
	if annotation != "" && len(list) == 0 {
		return []string{"~"}
	}
	return list
}

// splitList splits a list at its commas.
func splitList(s string) []string {
	var out []string
	for v := range strings.SplitSeq(s, ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}

// family is a set of IP families.
type family uint8

const (
	ipv4 family = 1 << iota
	ipv6
)

// families returns the IP families of a service: as declared, or else those of its cluster IPs. An empty set means the
// pod's primary family.
func families(o *kinds.Object) family {
	spec := &o.Spec.(*corev1.Service).Spec
	var f family
	for _, declared := range spec.IPFamilies {
		if declared == corev1.IPv6Protocol {
			f |= ipv6
		} else {
			f |= ipv4
		}
	}
	if f != 0 {
		return f
	}
	for _, ip := range append([]string{spec.ClusterIP}, spec.ClusterIPs...) {
		f |= familyOf(ip)
	}
	return f
}

func familyOf(ip string) family {
	a, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
		return 0
	case a.Unmap().Is4():
		return ipv4
	}
	return ipv6
}
