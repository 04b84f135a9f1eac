package lds

import (
	"slices"

	"cmp"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

// tcpFilters makes the network filters of a chain that forwards bytes to one cluster. stat is its name in statistics;
// if it is empty, the cluster's name is used.
func (b builder) tcpFilters(c proxyContext, d feature.Direction, cluster, stat string, port uint32, p protocols.Protocol,
	to traffic.Connection) []*listenerv3.Filter {
	chain := c.chain(d, false, port, p)
	proxy := &tcpv3.TcpProxy{StatPrefix: cmp.Or(stat, cluster), ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}}
	return b.tcpProxy(c, chain, proxy, to)
}

// refusingFilters makes the network filters of the chain for calls to the proxy's own port.
func (b builder) refusingFilters(c proxyContext, d feature.Direction) []*listenerv3.Filter {
	chain := c.chain(d, false, 0, protocols.Unsupported)
	chain.Refused = true
	proxy := &tcpv3.TcpProxy{StatPrefix: names.BlackHoleCluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: names.BlackHoleCluster}}
	return b.tcpProxy(c, chain, proxy, traffic.Connection{})
}

// fallbackFilters makes the network filters of the chain for calls to no service.
func (b builder) fallbackFilters(c proxyContext, cluster string) []*listenerv3.Filter {
	chain := c.chain(feature.Outbound, false, 0, protocols.Unsupported)
	chain.Unknown = true
	proxy := &tcpv3.TcpProxy{StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}}
	return b.tcpProxy(c, chain, proxy, traffic.Connection{})
}

// weightedTCPFilters makes the network filters of a chain that forwards connections to one of several clusters.
func (b builder) weightedTCPFilters(c proxyContext, d feature.Direction, to tcpDestination, port uint32,
	p protocols.Protocol) []*listenerv3.Filter {
	chain := c.chain(d, false, port, p)
	proxy := &tcpv3.TcpProxy{StatPrefix: to.statPrefix}
	weighted := &tcpv3.TcpProxy_WeightedCluster{}
	for w := range to.clusters.All {
		weighted.Clusters = append(weighted.Clusters, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: w.name, Weight: w.weight})
	}
	if len(weighted.Clusters) == 1 {
		proxy.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: weighted.Clusters[0].Name}
	} else {
		proxy.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: weighted}
	}
	chain.Mutual = to.mutual
	filters := b.tcpProxy(c, chain, proxy, to.connection)
	if to.resolved != 0 {
		filters = slices.Insert(filters, 0, c.serverNameResolver(to.resolved))
	}
	return filters
}

// tcpProxy makes the network filters of a chain that ends in a TCP proxy.
func (b builder) tcpProxy(c proxyContext, chain feature.Chain, proxy *tcpv3.TcpProxy, to traffic.Connection) []*listenerv3.Filter {
	if !chain.Refused {
		proxy.IdleTimeout = c.idleTimeout()
	}
	chain.StatPrefix = proxy.StatPrefix
	b.ApplyConnection(to, proxy)
	b.ChangeTCPProxy(chain, c.selections, proxy)
	return append(b.NetworkFilters(chain, c.selections), envoy.NetworkFilter("envoy.filters.network.tcp_proxy", envoy.Any(proxy)))
}
