package registry

import (
	"cmp"
	"iter"
	"slices"

	"github.com/istiod-lite/istiod-lite/api/protocols"
)

// Port is one port of a service.
type Port struct {
	Name       string
	Number     uint32
	TargetPort string // number or name as written; empty for the same number
	Protocol   protocols.Protocol
}

// linearPorts is the largest number of ports that are not indexed.
const linearPorts = 8

// SetPorts sets the ports, in the order of the object, and indexes many of them by number.
func (s *Service) SetPorts(ports []Port) {
	s.Ports, s.byNumber = ports, nil
	if len(ports) <= linearPorts {
		return
	}
	s.byNumber = make([]int32, len(ports))
	for i := range ports {
		s.byNumber[i] = int32(i)
	}
	slices.SortFunc(s.byNumber, func(a, b int32) int {
		return cmp.Or(cmp.Compare(ports[a].Number, ports[b].Number), cmp.Compare(a, b))
	})
}

// PortsByNumber returns the ports of that number, in the order of the object. They differ in their names.
func (s *Service) PortsByNumber(number uint32) iter.Seq[*Port] {
	return func(yield func(*Port) bool) {
		if len(s.byNumber) != len(s.Ports) {
			for i := range s.Ports {
				if s.Ports[i].Number == number && !yield(&s.Ports[i]) {
					return
				}
			}
			return
		}
		first, _ := slices.BinarySearchFunc(s.byNumber, number, func(i int32, n uint32) int { return cmp.Compare(s.Ports[i].Number, n) })
		for _, i := range s.byNumber[first:] {
			if s.Ports[i].Number != number || !yield(&s.Ports[i]) {
				return
			}
		}
	}
}

// Port returns the first port of that number, or nil.
func (s *Service) Port(number uint32) *Port {
	for p := range s.PortsByNumber(number) {
		return p
	}
	return nil
}
