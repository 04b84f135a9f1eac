package registry

import (
	"cmp"
	"strings"
)

// DefaultGatewayPort is the port at which a network's gateway accepts mTLS from other networks. The gateway forwards it
// by the name of the service (SNI).
const DefaultGatewayPort = 15443

// Gateway is one address at which a network is entered from others.
type Gateway struct {
	Network string
	Cluster string // the ID of the cluster that it runs in, also for the server's own; empty where it is unknown
	Address string // an IP, or a host name that is still to be resolved
	Port    uint32
}

// CompareGateways orders gateways: by address, port, network, cluster.
func CompareGateways(a, b Gateway) int {
	return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), strings.Compare(a.Network, b.Network), strings.Compare(a.Cluster, b.Cluster))
}
