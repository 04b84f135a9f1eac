package debug

import (
	"net/url"

	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// networkGateway is a gateway in istiod's format. This server has no HBONE gateways, so their fields are empty.
type networkGateway struct {
	Network        string
	Cluster        string
	Addr           string
	Port           uint32
	HBONEPort      uint32
	ServiceAccount struct{ Namespace, Name string }
}

// networkz lists the gateways between networks.
func (a *API) networkz(url.Values) (any, error) {
	return networkGateways(a.o.World.Snapshot()), nil
}

func networkGateways(s *snapshot.Snapshot) []networkGateway {
	list := []networkGateway{}
	if s == nil {
		return list
	}
	for _, g := range s.Networks.Gateways() {
		list = append(list, networkGateway{Network: g.Network, Cluster: g.Cluster, Addr: g.Address, Port: g.Port})
	}
	return list
}
