package serviceentry

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/registry"
)

// labelAutoAllocate, with the value false, leaves an entry without an allocated address.
const labelAutoAllocate = names.LabelAutoAllocate

// service returns the service of the entries of one host, the oldest first.
func (r *Registry) service(k registry.ServiceKey, entries []*entry) *registry.Service {
	first := entries[0]
	s := &registry.Service{
		Host: k.Host, Namespace: k.Namespace, Name: k.Host, Object: first.object.Name, Provider: registry.External,
		Resolution:   resolution(first.spec),
		MeshExternal: first.spec.Location == networkingv1.ServiceEntry_MESH_EXTERNAL,
		Labels:       first.object.Labels, Selector: first.spec.WorkloadSelector.GetLabels(), Created: first.object.Created,
		TrafficDist: r.namespaces.TrafficDistribution(k.Namespace, first.object.Annotations, nil),
	}
	for _, ns := range first.spec.ExportTo {
		s.ExportTo = append(s.ExportTo, strings.TrimSpace(ns))
	}
	s.ExportTo = r.opts.Visibility.Limit(s.ExportTo, k.Namespace, r.labels[k.Namespace])
	var all merged
	for _, e := range entries {
		if resolution(e.spec) == s.Resolution {
			all.add(e.spec)
		}
	}
	s.Addresses, s.ServiceAccounts = all.addresses.List, all.accounts.List
	s.SetPorts(all.ports)
	return s
}

func resolution(spec *networkingv1.ServiceEntry) registry.Resolution {
	switch spec.Resolution {
	case networkingv1.ServiceEntry_STATIC:
		return registry.ClientSide
	case networkingv1.ServiceEntry_DNS:
		return registry.DNS
	case networkingv1.ServiceEntry_DNS_ROUND_ROBIN:
		return registry.DNSRoundRobin
	case networkingv1.ServiceEntry_DYNAMIC_DNS:
		return registry.DynamicDNS
	}
	return registry.Passthrough
}

// merged is the union of the addresses, ports and identities of one host's entries.
type merged struct {
	addresses, accounts names.Distinct
	ports               []registry.Port
	numbers             map[uint32]struct{}
	names               names.Distinct // names of ports
}

// add merges an entry. Endpoints are matched to ports by name, so it makes a name unique that another port number
// already has.
func (m *merged) add(spec *networkingv1.ServiceEntry) {
	for _, a := range addresses(spec) {
		m.addresses.Add(a)
	}
	for _, a := range spec.SubjectAltNames {
		m.accounts.Add(a)
	}
	if m.numbers == nil {
		m.numbers = make(map[uint32]struct{}, len(spec.Ports))
	}
	for _, p := range spec.Ports {
		if _, ok := m.numbers[p.Number]; ok {
			continue
		}
		m.numbers[p.Number] = struct{}{}
		port := registry.Port{Name: p.Name, Number: p.Number, Protocol: protocols.Parse(p.Protocol)}
		if p.TargetPort != 0 {
			port.TargetPort = strconv.Itoa(int(p.TargetPort))
		}
		if !m.names.Add(p.Name) {
			port.Name = fmt.Sprintf("%s-%d", p.Name, p.Number)
			m.names.Add(port.Name)
		}
		m.ports = append(m.ports, port)
	}
}

// addresses returns an entry's addresses in canonical form. A range of one address becomes that address.
func addresses(spec *networkingv1.ServiceEntry) []string {
	out := make([]string, 0, len(spec.Addresses))
	for _, a := range spec.Addresses {
		if p, err := netip.ParsePrefix(a); err == nil && p.IsSingleIP() {
			a = p.Addr().String()
		} else if err == nil {
			a = p.String()
		} else if ip, err := netip.ParseAddr(a); err == nil {
			a = ip.String()
		}
		out = append(out, a)
	}
	return out
}

// needsAddress reports whether to allocate an address to a service: it has one host and no address, and Envoy does not
// use the client's destination.
func needsAddress(s *registry.Service, o *kinds.Object) bool {
	return len(s.Addresses) == 0 && s.Resolution != registry.Passthrough && !strings.HasPrefix(s.Host, "*") &&
		!strings.EqualFold(o.Labels[labelAutoAllocate], "false")
}

// assignedAddress is an address in the status of an entry, with its line number.
type assignedAddress struct {
	line    int
	address string
}

// assignedAddresses returns the addresses in the status of an entry, by host. Addresses of the empty host are for all
// hosts.
func assignedAddresses(o *kinds.Object) map[string][]assignedAddress {
	by, n := map[string][]assignedAddress{}, 0
	for line := range strings.Lines(o.Annotations[kinds.AnnotationAddresses]) {
		host, address, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		by[host] = append(by[host], assignedAddress{n, address})
		n++
	}
	return by
}

// addressesOf returns the assigned addresses of a host, IPv4 first.
func (e *entry) addressesOf(host string) []string {
	all := slices.Concat(e.assigned[""], e.assigned[host])
	slices.SortFunc(all, func(a, b assignedAddress) int { return cmp.Compare(a.line, b.line) })
	var v4, v6 []string
	for _, g := range all {
		if strings.Contains(g.address, ":") {
			v6 = append(v6, g.address)
		} else {
			v4 = append(v4, g.address)
		}
	}
	return append(v4, v6...)
}

// endpoints returns the endpoints of the entries that have the service's resolution, sorted. An entry of n addresses
// repeats each of its endpoints n times, as in istiod, where it is n services and the weight of a locality is their
// sum. A LOGICAL_DNS service has one endpoint, of its oldest entry.
//
// Entries that are visible nowhere have no endpoints, because a Kubernetes Service of the same host would get them.
func (r *Registry) endpoints(s *registry.Service, entries []*entry) []*registry.Endpoint {
	if r.visibility(s.Namespace) == meshv1alpha1.ServiceEntryVisibility_NONE {
		return nil
	}
	var out []*registry.Endpoint
	for _, e := range entries {
		if resolution(e.spec) != s.Resolution {
			continue
		}
		workloads := r.workloadsOf(s, e)
		for _, p := range e.spec.Ports {
			port := s.Port(p.Number).Name
			for _, w := range workloads {
				number, ok := w.Ports[p.Name]
				if !ok {
					number = cmp.Or(p.TargetPort, p.Number)
				}
				ep := w.Endpoint(port, number)
				ep.HealthKnown = w.Kind == kinds.Pod
				for range max(1, len(e.spec.Addresses)) {
					out = append(out, ep)
				}
			}
		}
	}
	if s.Resolution == registry.DNSRoundRobin {
		out = firstOfEachPort(out)
	}
	slices.SortStableFunc(out, registry.CompareEndpoints)
	return out
}

// firstOfEachPort returns the first usable endpoint of each port, because Envoy resolves one name alone. Healthy
// endpoints with an address come before others.
func firstOfEachPort(all []*registry.Endpoint) []*registry.Endpoint {
	worse := func(e *registry.Endpoint) int {
		n := 0
		if e.Address == "" {
			n += 2
		}
		if e.Health != registry.Healthy {
			n++
		}
		return n
	}
	var out []*registry.Endpoint
	at := map[string]int{}
	for _, e := range all {
		switch i, there := at[e.ServicePort]; {
		case !there:
			at[e.ServicePort] = len(out)
			out = append(out, e)
		case worse(e) < worse(out[i]):
			out[i] = e
		}
	}
	return out
}

// workloadsOf returns the workloads of an entry: selected and inline ones. The workload of a
// DNS entry without either is the host itself.
func (r *Registry) workloadsOf(s *registry.Service, e *entry) []*registry.Workload {
	if len(e.spec.Endpoints) == 0 && e.spec.WorkloadSelector == nil {
		if !s.Resolution.EndpointsInCluster() {
			return nil
		}
		return []*registry.Workload{r.inline(e, e.object.Name, &networkingv1.WorkloadEntry{Address: s.Host})}
	}
	var keys []registry.WorkloadKey
	r.selectors.Selected(name{e.object.Namespace, e.object.Name}, func(k registry.WorkloadKey) { keys = append(keys, k) })
	slices.SortFunc(keys, registry.WorkloadKey.Compare)
	out := lists.Map(keys, func(k registry.WorkloadKey) *registry.Workload { return r.workloads[k] })
	for i, ep := range e.spec.Endpoints {
		if w := r.inline(e, fmt.Sprintf("%s-%d", e.object.Name, i), ep); w.Reachable() {
			out = append(out, w)
		}
	}
	return out
}

func (r *Registry) inline(e *entry, workload string, ep *networkingv1.WorkloadEntry) *registry.Workload {
	w := &registry.Workload{
		WorkloadKey: registry.WorkloadKey{Kind: kinds.ServiceEntry, Namespace: e.object.Namespace, Name: workload},
		Labels:      ep.Labels, ServiceAccount: ep.ServiceAccount, Locality: registry.ParseLocality(ep.Locality),
		Network: ep.Network, Cluster: r.opts.Cluster, TLSMode: registry.EntryTLSMode(ep.Labels, ep.ServiceAccount), Owner: workload,
		Ports: ep.Ports, Weight: ep.Weight,
	}
	if ep.ServiceAccount != "" {
		w.Identity = registry.SPIFFE(r.opts.TrustDomain, e.object.Namespace, ep.ServiceAccount)
	}
	if ep.Address != "" {
		w.Addresses = []string{ep.Address}
	}
	if ep.Locality == "" {
		w.Locality, _ = registry.LocalityOf(ep.Labels)
	}
	return w
}
