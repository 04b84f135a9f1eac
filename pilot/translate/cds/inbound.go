package cds

import (
	"net"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/inbound"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
)

// inboundClusterKey is the whole input of an inbound cluster.
type inboundClusterKey struct {
	inbound.Port
	mesh         *mesh.Config
	capabilities node.Capabilities
	ipv4, ipv6   bool
	pool         *kinds.Object // Sidecar whose inboundConnectionPool overrides the rules'
	selections   feature.Selections
}

// Inbound generates the clusters that lead to the workload itself, as one partition.
func (m *Clusters) Inbound(v *view.View, c cohort.Inbound) engine.Generator[struct{}] {
	return engine.Single(func() []*envoy.Resource { return m.inboundClusters(v, c) }, engine.IfAll)
}

func (m *Clusters) inboundClusters(v *view.View, c cohort.Inbound) []*envoy.Resource {
	if !c.Sidecar {
		return nil
	}
	selections := m.hooks.ClusterSelections(c.Selections)
	out := []*envoy.Resource{m.fixed.Get(fixedClusterKey{names.InboundPassthroughCluster, v.Mesh().With(c.Settings), c.Capabilities,
		c.IPv4, c.IPv6, selections})}
	for _, p := range inbound.Ports(v, c) {
		out = append(out, m.inbounds.Get(inboundClusterKey{p, v.Mesh().With(c.Settings), c.Capabilities, c.IPv4, c.IPv6, c.Ingress, selections}))
	}
	return out
}

// maxCleanupInterval is the longest cleanup interval that Envoy accepts, in seconds. With it the hosts of connections
// to the workload are kept as long as the connections.
const maxCleanupInterval = 9223372035

func (b builder) buildInboundCluster(k inboundClusterKey) *envoy.Resource {
	name := names.Cluster(names.Inbound, k.Target, "", "")
	c := &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          k.statName(name) + ";",
		ConnectTimeout:       k.mesh.GetConnectTimeout(),
		CommonLbConfig:       &clusterv3.Cluster_CommonLbConfig{},
		CircuitBreakers:      unlimited(),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		CleanupInterval:      &durationpb.Duration{Seconds: maxCleanupInterval},
		UpstreamBindConfig:   inboundSource(k.ipv4, k.ipv6),

		UpstreamConnectionOptions: keepalive(k.mesh),
	}
	meta := serviceMetadata(slices.Collect(k.Services.All)...)
	if o := k.Rule.Object; o != nil && o.Spec.(*networkingv1.DestinationRule).TrafficPolicy != nil {
		meta["config"] = envoy.Text(o.Path())
	}
	c.Metadata = envoy.IstioMetadata(meta)
	if k.Endpoint != "" {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		c.LbPolicy, c.CleanupInterval = clusterv3.Cluster_ROUND_ROBIN, nil
		host, port := splitEndpoint(k.Endpoint)
		if host == "127.0.0.1" || host == "::1" {
			c.UpstreamBindConfig = nil
		}
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: envoy.Address(host, port)}},
			}},
		}}}
	}
	options := &httpv3.HttpProtocolOptions{}
	switch {
	case k.Protocol.IsHTTP2():
		options.UpstreamProtocolOptions = envoy.ExplicitHTTP2()
	case k.Protocol.Sniffed():
		options.UpstreamProtocolOptions = envoy.DownstreamProtocol()
	}
	policy := k.Rule.Policy(k.Port.Port).WithDefaults(k.mesh.GetDefaultTrafficPolicy())
	if k.pool != nil {
		spec := k.pool.Spec.(*networkingv1.Sidecar)
		if spec.InboundConnectionPool != nil {
			policy.ConnectionPool = spec.InboundConnectionPool
		}
		for _, l := range spec.Ingress {
			if k.Ingress != nil && l.GetPort().GetNumber() == k.Port.Port && l.ConnectionPool != nil {
				policy.ConnectionPool = l.ConnectionPool
			}
		}
	}
	b.ApplyPolicy(policy, feature.PolicyTarget{Sniffed: k.Protocol.Sniffed(), Inbound: true}, c, options)
	if k.Protocol.IsHTTP() || k.Protocol.Sniffed() {
		preserveCase(k.mesh, options)
	}
	setHTTPOptions(c, options)
	limitBuffers(k.mesh, false, c)
	b.ChangeCluster(feature.Cluster{
		Mesh: k.mesh, Capabilities: k.capabilities, Direction: feature.Inbound,
		HTTP2: options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil, Downstream: options.GetUseDownstreamProtocolConfig() != nil,
	}, k.selections, c)
	return envoy.NewResource(name, c)
}

// statName returns the name of the cluster in statistics, by the first service that has the port.
func (k inboundClusterKey) statName(name string) string {
	pattern := k.mesh.GetInboundClusterStatName()
	for s := range k.Services.All {
		if pattern == "" {
			break
		}
		return view.StatName(pattern, s, k.Port.Port, k.Target, "")
	}
	return name
}

func splitEndpoint(s string) (string, uint32) {
	if strings.HasPrefix(s, "unix://") {
		return s, 0
	}
	host, port, _ := net.SplitHostPort(s)
	n, _ := strconv.ParseUint(port, 10, 16)
	return host, uint32(n)
}
