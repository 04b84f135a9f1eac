package trace

import (
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	alpnv2alpha1 "istio.io/api/envoy/config/filter/http/alpn/v2alpha1"
)

// httpOptions is the key of a cluster's settings of HTTP.
const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// offer is the protocols (ALPN) that a proxy offers to a cluster: instead of those in the cluster's TLS settings, or if
// the settings have none.
type offer struct{ instead, otherwise []string }

// offerOf returns what a connection manager offers to a cluster. In Istio's Envoy a filter of its own replaces the
// cluster's protocols. In stock Envoy the filter of states does, by the metadata of the cluster.
func offerOf(h *hcmv3.HttpConnectionManager, cluster *clusterv3.Cluster) offer {
	istio := cluster.GetMetadata().GetFilterMetadata()["istio"].GetFields()
	o, version := offer{otherwise: []string{"http/1.1"}}, alpnv2alpha1.FilterConfig_HTTP11
	options := &httpv3.HttpProtocolOptions{}
	if config := cluster.GetTypedExtensionProtocolOptions()[httpOptions]; config != nil &&
		config.UnmarshalTo(options) == nil && options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil {
		o, version = offer{otherwise: []string{"h2"}}, alpnv2alpha1.FilterConfig_HTTP2
	}
	if istio["alpn_override"].GetStringValue() == "false" {
		return o
	}
	for _, f := range h.GetHttpFilters() {
		config := &alpnv2alpha1.FilterConfig{}
		switch {
		case f.GetTypedConfig().MessageIs(config) && f.GetTypedConfig().UnmarshalTo(config) == nil:
			for _, a := range config.GetAlpnOverride() {
				if a.GetUpstreamProtocol() == version {
					o.instead = a.GetAlpnOverride()
				}
			}
		case f.GetName() == "envoy.filters.http.set_filter_state" && istio["alpn"].GetStringValue() != "":
			o.instead = strings.Split(istio["alpn"].GetStringValue(), ",")
		}
	}
	return o
}

// of returns the protocols that are offered with TLS settings that have a list.
func (o offer) of(own []string) []string {
	switch {
	case len(o.instead) > 0:
		return o.instead
	case len(own) > 0:
		return own
	}
	return o.otherwise
}
