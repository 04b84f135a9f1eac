package envoyfilter

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// matchesService reports whether a cluster belongs to the service that a patch matches. The name of an inbound cluster
// contains no service, but its metadata does.
func (p patch) matchesService(t feature.PatchTarget, c *clusterv3.Cluster) bool {
	m := p.GetMatch().GetCluster()
	if t.Direction != feature.Inbound || m.GetService() == "" || m.GetName() != "" {
		return true
	}
	services := c.GetMetadata().GetFilterMetadata()["istio"].GetFields()["services"].GetListValue().GetValues()
	return slices.ContainsFunc(services, func(v *structpb.Value) bool {
		return v.GetStructValue().GetFields()["host"].GetStringValue() == m.GetService()
	})
}

// mergeIntoCluster merges the value of a patch into a cluster. If the cluster chooses a transport socket for each
// endpoint, a transport socket is merged into those of the same name, because the cluster's own would never be used.
func (p patch) mergeIntoCluster(c *clusterv3.Cluster) error {
	value := p.value.(*clusterv3.Cluster)
	lists, name := p.op() == mergeLists, c.Name
	return change(c, func(c *clusterv3.Cluster) error {
		if socket := value.GetTransportSocket(); socket != nil && len(c.TransportSocketMatches) > 0 {
			merged := false
			for _, m := range c.TransportSocketMatches {
				if m.GetTransportSocket().GetName() != socket.Name {
					continue
				}
				merged = true
				if err := mergeMessages(m.TransportSocket.ProtoReflect(), socket.ProtoReflect(), lists); err != nil {
					return err
				}
			}
			if !merged {
				return fmt.Errorf("none of the transport sockets that the cluster chooses from is named %q", socket.Name)
			}
			value = proto.Clone(value).(*clusterv3.Cluster)
			value.TransportSocket = nil
		}
		err := mergeMessages(c.ProtoReflect(), value.ProtoReflect(), lists)
		c.Name = name
		return err
	})
}
