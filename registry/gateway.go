package registry

import (
	"cmp"
	"strings"
)

// DefaultGatewayPort is where a network's gateway takes the mTLS of other networks, to hand it on by the name of the service.
const DefaultGatewayPort = 15443

// Gateway is one address by which a network is entered from others.
type Gateway struct {
	Network string
	Cluster string // the ID of the cluster that it stands in, the server's own written out; empty where nobody says
	Address string // an IP, or a host name that is still to be resolved
	Port    uint32
}

// CompareGateways orders gateways: by address, port, network, cluster.
func CompareGateways(a, b Gateway) int {
	return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), strings.Compare(a.Network, b.Network), strings.Compare(a.Cluster, b.Cluster))
}
