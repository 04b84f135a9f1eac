package peermetadata

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

const name = "istio.metadata_exchange"

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{
		Name:  "peermetadata",
		Hooks: feature.Hooks{FiltersReadOf: filtersReadOf, HTTPFilters: httpFilters, NetworkFilters: networkFilters, Cluster: cluster},
	}
}

// filtersReadOf clears the fields that the filters do not depend on.
func filtersReadOf(c feature.Chain) feature.Chain {
	return feature.Chain{Proxy: feature.Proxy{Mesh: c.Mesh, Capabilities: c.Capabilities}, Direction: c.Direction, Mutual: c.Mutual}
}

// httpFilters returns the filter that exchanges metadata in HTTP headers.
func httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	if !c.Capabilities.Has(node.HTTPPeerMetadata) {
		return nil
	}
	side := "upstream"
	if c.Direction == feature.Inbound {
		side = "downstream"
	}
	headers := map[string]any{"istio_headers": map[string]any{}}
	sent := headers
	if c.Direction != feature.Inbound &&
		c.Mesh.GetDefaultConfig().GetProxyHeaders().GetMetadataExchangeHeaders().GetMode() == meshv1alpha1.ProxyConfig_ProxyHeaders_IN_MESH {
		sent = map[string]any{"istio_headers": map[string]any{"skip_external_clusters": true}}
	}
	return []*hcmv3.HttpFilter{envoy.HTTPFilter(name, envoy.TypedStruct("io.istio.http.peer_metadata.Config", map[string]any{
		side + "_discovery":   []any{headers, map[string]any{"workload_discovery": map[string]any{}}},
		side + "_propagation": []any{sent},
	}))}
}

// networkFilters returns the filter by which a chain learns the calling workload, over the mesh's own TLS.
func networkFilters(c feature.Chain) []*listenerv3.Filter {
	if c.Direction != feature.Inbound && !c.Mutual || !c.Capabilities.Has(node.NetworkMetadataExchange) {
		return nil
	}
	return []*listenerv3.Filter{envoy.NetworkFilter(name, exchange())}
}

func cluster(c feature.Cluster, out *clusterv3.Cluster) {
	if c.Direction != feature.Inbound && c.Capabilities.Has(node.NetworkMetadataExchange) {
		out.Filters = append(out.Filters, &clusterv3.Filter{Name: name, TypedConfig: exchange()})
	}
}

// exchange configures the exchange of metadata on TCP connections.
func exchange() *anypb.Any {
	return envoy.TypedStruct("envoy.tcp.metadataexchange.config.MetadataExchange",
		map[string]any{"protocol": names.PeerExchange, "enable_discovery": true})
}
