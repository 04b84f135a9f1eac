package mtls

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	alpnv2alpha1 "istio.io/api/envoy/config/filter/http/alpn/v2alpha1"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// announcedALPN is the key, in a cluster's metadata, of the ALPN that an Envoy without istio.alpn offers for HTTP.
const announcedALPN = "alpn"

// announceReadsOf clears the fields that the filter does not depend on.
func announceReadsOf(c feature.Chain) feature.Chain {
	return feature.Chain{Proxy: feature.Proxy{Capabilities: c.Capabilities}, Direction: c.Direction}
}

// announce returns the filter by which mTLS connections announce in their ALPN that they carry HTTP. Without it, the
// other side would take them for TCP at a port whose protocol it detects, and policies for HTTP would not apply.
func announce(c feature.Chain) []*hcmv3.HttpFilter {
	switch {
	case c.Direction == feature.Inbound:
		return nil
	case c.Capabilities.Has(node.ALPNFilter):
		return []*hcmv3.HttpFilter{envoy.HTTPFilter("istio.alpn",
			envoy.Any(&alpnv2alpha1.FilterConfig{AlpnOverride: []*alpnv2alpha1.FilterConfig_AlpnOverride{
				{UpstreamProtocol: alpnv2alpha1.FilterConfig_HTTP10, AlpnOverride: []string{"istio-http/1.0", "istio", "http/1.0"}},
				{UpstreamProtocol: alpnv2alpha1.FilterConfig_HTTP11, AlpnOverride: []string{"istio-http/1.1", "istio", "http/1.1"}},
				{UpstreamProtocol: alpnv2alpha1.FilterConfig_HTTP2, AlpnOverride: []string{"istio-h2", "istio", "h2"}},
			}}))}
	}
	// In stock Envoy the ALPN is in the metadata of the request's cluster.
	return []*hcmv3.HttpFilter{envoy.HTTPFilter("envoy.filters.http.set_filter_state",
		envoy.Any(&setstatev3.Config{OnRequestHeaders: []*statev3.FilterStateValue{{
			Key: &statev3.FilterStateValue_ObjectKey{ObjectKey: "envoy.network.application_protocols"},
			Value: &statev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
					Specifier: &corev3.DataSource_InlineString{InlineString: "%METADATA(CLUSTER:istio:" + announcedALPN + ")%"},
				}},
				OmitEmptyValues: true,
			}},
			SkipIfEmpty: true,
		}}}))}
}

// announced adds the ALPN that a stock Envoy offers to a cluster of the mesh.
func announced(c feature.Cluster, cluster *clusterv3.Cluster) {
	istio := cluster.GetMetadata().GetFilterMetadata()["istio"]
	if c.Capabilities.Has(node.ALPNFilter) || istio == nil || istio.Fields["alpn_override"] != nil {
		return
	}
	if cluster.TransportSocket == nil && len(cluster.TransportSocketMatches) == 0 {
		return
	}
	alpn := "istio-http/1.1,istio,http/1.1"
	switch {
	case c.HTTP2:
		alpn = "istio-h2,istio,h2"
	case c.Downstream: // the version is not known before the request: none is negotiated, and the other side's codec detects it
		alpn = "istio-http/1.1"
	}
	istio.Fields[announcedALPN] = envoy.Text(alpn)
}
