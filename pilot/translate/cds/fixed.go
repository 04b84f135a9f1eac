package cds

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

// fixedClusterKey is the whole input of a cluster without a service.
type fixedClusterKey struct {
	name         string
	mesh         *mesh.Config
	capabilities node.Capabilities
	ipv4, ipv6   bool
	selections   feature.Selections
}

func (b builder) buildFixedCluster(k fixedClusterKey) *envoy.Resource {
	if k.isDynamicDNS() {
		return b.buildDynamicDNSCluster(k)
	}
	c := &clusterv3.Cluster{Name: k.name, ConnectTimeout: k.mesh.GetConnectTimeout()}
	if k.name == names.BlackHoleCluster {
		c.AltStatName = k.name + ";"
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		return envoy.NewResource(k.name, c)
	}
	c.AltStatName = names.PassthroughCluster + ";"
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	c.CircuitBreakers = unlimited()
	c.UpstreamConnectionOptions = keepalive(k.mesh)
	b.ApplyPolicy(traffic.Policy{ConnectionPool: k.mesh.GetDefaultTrafficPolicy().GetConnectionPool()}, feature.PolicyTarget{}, c,
		&httpv3.HttpProtocolOptions{})
	options := &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: envoy.Duration(5 * time.Minute)},
		UpstreamProtocolOptions:   envoy.DownstreamProtocol(),
	}
	preserveCase(k.mesh, options)
	setHTTPOptions(c, options)
	limitBuffers(k.mesh, false, c)
	in := feature.Cluster{Mesh: k.mesh, Capabilities: k.capabilities}
	if k.name == names.InboundPassthroughCluster {
		in.Direction = feature.Inbound
		c.UpstreamBindConfig = inboundSource(k.ipv4, k.ipv6)
	}
	b.ChangeCluster(in, k.selections, c)
	return envoy.NewResource(k.name, c)
}

// inboundSource returns the address from which a sidecar calls its own workload, so that the call is not captured
// again. There is one for each address family of the proxy.
func inboundSource(ipv4, ipv6 bool) *corev3.BindConfig {
	const v4, v6 = "127.0.0.6", "::6"
	switch {
	case !ipv6:
		return &corev3.BindConfig{SourceAddress: envoy.SocketAddress(v4, 0)}
	case !ipv4:
		return &corev3.BindConfig{SourceAddress: envoy.SocketAddress(v6, 0)}
	}
	return &corev3.BindConfig{
		SourceAddress:        envoy.SocketAddress(v4, 0),
		ExtraSourceAddresses: []*corev3.ExtraSourceAddress{{Address: envoy.SocketAddress(v6, 0)}},
	}
}
