package cds

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dfpclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	dfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

// DNSCache returns the cache of the addresses of called hosts. The filters that resolve them and the clusters that
// connect to them share it. Envoy accepts one cache of each name, so the name contains everything that the cache
// depends on.
func DNSCache(m *mesh.Config, v4, v6 bool) *dfpv3.DnsCacheConfig {
	family := dnsFamily(v4, v6)
	return &dfpv3.DnsCacheConfig{
		Name:                   "called-hosts-" + family.String() + "-" + m.GetDnsRefreshRate().AsDuration().String(),
		DnsLookupFamily:        family,
		DnsRefreshRate:         m.GetDnsRefreshRate(),
		TypedDnsResolverConfig: resolver(nil),
	}
}

// resolver returns the resolver of names. queries limits the number of queries from one port; nil means any number.
func resolver(queries *wrapperspb.UInt32Value) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares",
		TypedConfig: envoy.Any(&caresv3.CaresDnsResolverConfig{UdpMaxQueries: queries})}
}

// resolveCalledHosts makes a cluster connect to the host of each request, or to the server name of each TLS connection.
// The TLS settings of the cluster decide which names a certificate must have.
func resolveCalledHosts(m *mesh.Config, v4, v6 bool, c *clusterv3.Cluster) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dynamic_forward_proxy", TypedConfig: envoy.Any(&dfpclusterv3.ClusterConfig{
			ClusterImplementationSpecifier: &dfpclusterv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: DNSCache(m, v4, v6)},
			AllowInsecureClusterOptions:    true,
		}),
	}}
	c.LbPolicy, c.LbConfig = clusterv3.Cluster_CLUSTER_PROVIDED, nil
}

// buildDynamicDNSCluster makes the cluster for requests to no service, in a mesh that resolves their hosts.
func (b builder) buildDynamicDNSCluster(k fixedClusterKey) *envoy.Resource {
	c := &clusterv3.Cluster{
		Name: k.name, AltStatName: k.name + ";", ConnectTimeout: k.mesh.GetConnectTimeout(), CircuitBreakers: unlimited(),
		UpstreamConnectionOptions: keepalive(k.mesh),
	}
	options := &httpv3.HttpProtocolOptions{}
	b.ApplyPolicy(traffic.Policy{ConnectionPool: k.mesh.GetDefaultTrafficPolicy().GetConnectionPool()}, feature.PolicyTarget{}, c, options)
	options.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: envoy.Duration(5 * time.Minute)}
	options.UpstreamProtocolOptions = envoy.DownstreamProtocol()
	resolveCalledHosts(k.mesh, k.ipv4, k.ipv6, c)
	if t := k.mesh.GetOutboundTrafficPolicy().GetTls(); t != nil {
		b.ApplyTLS(t, feature.PolicyTLS{Mesh: k.mesh, Mutual: b.Upstream(feature.Upstream{Compliance: k.mesh.Compliance})}, c, options)
	}
	preserveCase(k.mesh, options)
	setHTTPOptions(c, options)
	limitBuffers(k.mesh, false, c)
	b.ChangeCluster(feature.Cluster{Mesh: k.mesh, Capabilities: k.capabilities}, k.selections, c)
	return envoy.NewResource(k.name, c)
}

// isDynamicDNS reports whether a fixed cluster is the one for requests to no service.
func (k fixedClusterKey) isDynamicDNS() bool { return k.name == names.AllowAnyDynamicDNSCluster }
