package lds

import (
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/registry"
)

// tcpFilters makes the network filters of a chain that forwards bytes to one cluster.
func (b builder) tcpFilters(c proxyContext, d feature.Direction, cluster string, p registry.Protocol, maxDuration time.Duration) []*listenerv3.Filter {
	chain := c.chain(d, false, p)
	chain.Cluster = cluster
	proxy := &tcpv3.TcpProxy{StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}}
	if maxDuration > 0 {
		proxy.MaxDownstreamConnectionDuration = envoy.Duration(maxDuration)
	}
	return append(b.NetworkFilters(chain, c.selections), envoy.NetworkFilter("envoy.filters.network.tcp_proxy", envoy.Any(proxy)))
}
