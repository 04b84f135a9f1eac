package kube

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/registry"
)

// SliceFacts is the part of an EndpointSlice that the registry reads, beside its labels: a fourth of its size. A source
// with many EndpointSlices may use SliceFacts as an object's Spec.
type SliceFacts struct {
	Hosts     bool              // whether its addresses are host names
	Ports     map[string]uint32 // by the name of the service port; never modified
	Endpoints []SliceEndpoint
}

// SliceEndpoint is one endpoint of an EndpointSlice. Unset conditions have the values of a ready endpoint.
type SliceEndpoint struct {
	Addresses                   []string
	PodNamespace, Pod           string // set if HasPod; an empty namespace is the slice's
	NodeName, HostName          string
	HasPod                      bool
	Ready, Serving, Terminating bool
}

// SliceFactsOf returns the SliceFacts of an EndpointSlice.
func SliceFactsOf(s *discoveryv1.EndpointSlice) *SliceFacts {
	out := &SliceFacts{Hosts: s.AddressType == discoveryv1.AddressTypeFQDN, Endpoints: make([]SliceEndpoint, len(s.Endpoints))}
	for _, p := range s.Ports {
		if p.Port != nil {
			out.AddPort(valueOr(p.Name, ""), uint32(*p.Port))
		}
	}
	for i := range s.Endpoints {
		e, c := &s.Endpoints[i], &s.Endpoints[i].Conditions
		to := SliceEndpoint{
			Addresses: e.Addresses, NodeName: valueOr(e.NodeName, ""), HostName: valueOr(e.Hostname, ""),
			Ready: valueOr(c.Ready, true), Serving: valueOr(c.Serving, true), Terminating: valueOr(c.Terminating, false),
		}
		if r := e.TargetRef; r != nil && r.Kind == "Pod" {
			to.HasPod, to.PodNamespace, to.Pod = true, r.Namespace, r.Name
		}
		out.Endpoints[i] = to
	}
	return out
}

// slicePort is a service port that a slice has, with its number in the slice.
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

// AddPort adds a port. If a name is repeated, the last port is used. A port without a number is not added: it means
// every port, which assignments cannot express.
func (s *SliceFacts) AddPort(name string, port uint32) {
	lists.Put(&s.Ports, name, port)
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
