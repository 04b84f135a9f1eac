package translate

import (
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	mongov3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/mongo_proxy/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/authz"
	"github.com/istiod-lite/istiod-lite/pilot/feature/telemetry"
)

// tcpFilters makes the filters of a chain that forwards bytes to one cluster.
func (c proxyContext) tcpFilters(d direction, cluster string, mongo bool, maxDuration time.Duration) []*listenerv3.Filter {
	var f []*listenerv3.Filter
	if d == inbound {
		f = c.addMetadataExchange(f)
		if c.denyAll {
			f = append(f, authz.DenyAllTCP())
		}
	}
	if telemetry.StatsEnabled(c.mesh) && c.capabilities.Has(node.NetworkStats) {
		f = append(f, envoy.NetworkFilter("istio.stats", statsConfig()))
	}
	if mongo {
		f = append(f, envoy.NetworkFilter("envoy.filters.network.mongo_proxy", envoy.Any(&mongov3.MongoProxy{StatPrefix: cluster})))
	}
	proxy := &tcpv3.TcpProxy{StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster}}
	if maxDuration > 0 {
		proxy.MaxDownstreamConnectionDuration = envoy.Duration(maxDuration)
	}
	return append(f, envoy.NetworkFilter("envoy.filters.network.tcp_proxy", envoy.Any(proxy)))
}

// addMetadataExchange appends the filter by which an inbound chain learns the caller's workload.
func (c proxyContext) addMetadataExchange(f []*listenerv3.Filter) []*listenerv3.Filter {
	if c.capabilities.Has(node.NetworkMetadataExchange) {
		f = append(f, envoy.NetworkFilter("istio.metadata_exchange", metadataExchange()))
	}
	return f
}
