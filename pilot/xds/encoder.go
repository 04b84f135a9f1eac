package xds

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Response is what one message to a proxy says, before it is encoded.
type Response struct {
	Delta        bool
	TypeURL      string
	Message      string // type URL of the resources; empty: TypeURL
	Version      string // a hash of the resources; only delta resources have versions of their own
	Nonce        string
	ControlPlane *corev3.ControlPlane
	Resources    []*envoy.Resource
	Versions     []string // delta: of each resource, as the client is told; nil: its own
	Removed      []string // delta only
}

// Size is the number of bytes of the response's resources.
func (r *Response) Size() int {
	n := 0
	for _, x := range r.Resources {
		n += len(x.Body)
	}
	for _, name := range r.Removed {
		n += len(name)
	}
	return n
}

// Encoder turns a response into what gRPC's SendMsg takes. Called from many goroutines at once. It must not change or keep the resources' bytes.
type Encoder interface {
	Encode(*Response) any
}

// messages encodes by building the protobuf messages, whose Anys share the resources' bytes.
type messages struct{}

func (messages) Encode(r *Response) any {
	message := cmp.Or(r.Message, r.TypeURL)
	if r.Delta {
		list := make([]discoveryv3.Resource, len(r.Resources))
		m := &discoveryv3.DeltaDiscoveryResponse{
			SystemVersionInfo: r.Version, TypeUrl: r.TypeURL, Nonce: r.Nonce, ControlPlane: r.ControlPlane,
			RemovedResources: r.Removed, Resources: make([]*discoveryv3.Resource, len(r.Resources)),
		}
		for i, x := range r.Resources {
			list[i].Name, list[i].Version = x.Name, x.Version
			if r.Versions != nil {
				list[i].Version = r.Versions[i]
			}
			list[i].Resource = &anypb.Any{TypeUrl: message, Value: x.Value()}
			m.Resources[i] = &list[i]
		}
		return m
	}
	m := &discoveryv3.DiscoveryResponse{
		VersionInfo: r.Version, TypeUrl: r.TypeURL, Nonce: r.Nonce, ControlPlane: r.ControlPlane, Resources: make([]*anypb.Any, len(r.Resources)),
	}
	for i, x := range r.Resources {
		m.Resources[i] = &anypb.Any{TypeUrl: message, Value: x.Value()}
	}
	return m
}
