package registry

import (
	"cmp"
	"strings"
)

// DefaultGatewayPort is the port at which a network's gateway accepts mTLS from other networks. The gateway forwards it
// by the name of the service (SNI).
const DefaultGatewayPort = 15443

// Gateway is one address of a gateway through which other networks enter a network.
type Gateway struct {
	Network string
	Cluster string // ID of the gateway's cluster, also for the server's own; empty if unknown
	Address string // IP address, or a host name that is not yet resolved
	Port    uint32
}

// CompareGateways orders gateways: by address, port, network, cluster.
func CompareGateways(a, b Gateway) int {
	return cmp.Or(strings.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), strings.Compare(a.Network, b.Network),
		strings.Compare(a.Cluster, b.Cluster))
}
