package kube

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/registry"
)

// SliceFacts is what of an EndpointSlice is read here, beside its labels: a fourth of its size. A source that reads
// many may hand on a Slice as an object's Spec.
type SliceFacts struct {
	Hosts     bool              // its addresses are host names
	Ports     map[string]uint32 // by the name of the service port; never modified
	Endpoints []SliceEndpoint
}

// SliceEndpoint is one endpoint of a Slice. Conditions that are not set count as those of one that is ready.
type SliceEndpoint struct {
	Addresses                   []string
	PodNamespace, Pod           string // where OfPod; without a namespace it is the slice's
	NodeName, HostName          string
	HasPod                      bool
	Ready, Serving, Terminating bool
}

// SliceFactsOf reads an EndpointSlice.
func SliceFactsOf(s *discoveryv1.EndpointSlice) *SliceFacts {
	out := &SliceFacts{Hosts: s.AddressType == discoveryv1.AddressTypeFQDN, Endpoints: make([]SliceEndpoint, len(s.Endpoints))}
	for _, p := range s.Ports {
		if p.Port != nil {
			out.AddPort(or(p.Name, ""), uint32(*p.Port))
		}
	}
	for i := range s.Endpoints {
		e, c := &s.Endpoints[i], &s.Endpoints[i].Conditions
		to := SliceEndpoint{
			Addresses: e.Addresses, NodeName: or(e.NodeName, ""), HostName: or(e.Hostname, ""),
			Ready: or(c.Ready, true), Serving: or(c.Serving, true), Terminating: or(c.Terminating, false),
		}
		if r := e.TargetRef; r != nil && r.Kind == "Pod" {
			to.HasPod, to.PodNamespace, to.Pod = true, r.Namespace, r.Name
		}
		out.Endpoints[i] = to
	}
	return out
}

// slicePort is a port of a service that a slice has, and its number there.
type slicePort struct {
	name   string
	number uint32
}

// portsOf returns the ports of a service that the slice has, in the order of the service.
func (s *SliceFacts) portsOf(svc *registry.Service) []slicePort {
	var list []slicePort
	for i := range svc.Ports {
		if number, ok := s.Ports[svc.Ports[i].Name]; ok {
			list = append(list, slicePort{svc.Ports[i].Name, number})
		}
	}
	return list
}

// AddPort adds a port; the last of a name wins. One without a number means every port, nothing that an assignment can
// hold: it is not added.
func (s *SliceFacts) AddPort(name string, port uint32) {
	if s.Ports == nil {
		s.Ports = map[string]uint32{}
	}
	s.Ports[name] = port
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
