package crd

import (
	"google.golang.org/protobuf/encoding/protowire"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// decodeSlice decodes the facts of a masked EndpointSlice directly, as decodePod does.
func decodeSlice(masked []byte, in *interner) (h head, spec any, err error) {
	s := &kube.SliceFacts{}
	if h, err = readMetaHead(fieldOf(masked, 1), in, func(protowire.Number, []byte) {}); err != nil {
		return h, nil, err
	}
	n, ports := 0, [][]byte(nil)
	if err = eachField(masked, func(number protowire.Number, _, v []byte) error {
		switch number {
		case 2:
			n++
		case 3:
			ports = append(ports, v)
		case 4:
			s.Hosts = string(v) == string(discoveryv1.AddressTypeFQDN)
		}
		return nil
	}); err != nil {
		return h, nil, err
	}
	s.Ports = in.slicePorts(ports)
	s.Endpoints = make([]kube.SliceEndpoint, 0, n)
	err = eachField(masked, func(number protowire.Number, _, v []byte) error {
		if number != 2 {
			return nil
		}
		e, err := sliceEndpoint(v, in)
		s.Endpoints = append(s.Endpoints, e)
		return err
	})
	return h, s, err
}

func sliceEndpoint(text []byte, in *interner) (e kube.SliceEndpoint, err error) {
	e.Ready, e.Serving = true, true
	err = eachField(text, func(number protowire.Number, _, v []byte) error {
		switch number {
		case 1:
			e.Addresses = append(e.Addresses, string(v))
		case 2:
			return eachField(v, func(number protowire.Number, text, _ []byte) error {
				switch number {
				case 1:
					e.Ready = isSet(text)
				case 2:
					e.Serving = isSet(text)
				case 3:
					e.Terminating = isSet(text)
				}
				return nil
			})
		case 3:
			e.HostName = string(v)
		case 4:
			if e.HasPod = string(fieldOf(v, 1)) == "Pod"; e.HasPod {
				e.PodNamespace, e.Pod = in.bytes(fieldOf(v, 2)), string(fieldOf(v, 3))
			}
		case 6:
			e.NodeName = in.bytes(v)
		}
		return nil
	})
	return e, err
}
