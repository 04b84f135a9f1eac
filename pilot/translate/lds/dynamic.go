package lds

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	dfpfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	snidfpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/cds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
	"github.com/istiod-lite/istiod-lite/registry"
)

// hostResolver returns the filter that resolves the host of a request, if its route's cluster requires it.
func (c proxyContext) hostResolver() *hcmv3.HttpFilter {
	return envoy.HTTPFilter("envoy.filters.http.dynamic_forward_proxy", envoy.Any(&dfpfilterv3.FilterConfig{
		ImplementationSpecifier: &dfpfilterv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: cds.DNSCache(c.mesh, c.ipv4, c.ipv6)},
	}))
}

// serverNameResolver returns the filter that resolves the server name of a TLS connection.
func (c proxyContext) serverNameResolver(port uint32) *listenerv3.Filter {
	return envoy.NetworkFilter("envoy.extensions.filters.network.sni_dynamic_forward_proxy", envoy.Any(&snidfpv3.FilterConfig{
		DnsCacheConfig: cds.DNSCache(c.mesh, c.ipv4, c.ipv6), PortSpecifier: &snidfpv3.FilterConfig_PortValue{PortValue: port},
	}))
}

// resolvedPort returns the port at which the called hosts of a service are called, or 0 if proxies do not resolve them.
func resolvedPort(s *registry.Service, port uint32) uint32 {
	if s.Resolution != registry.DynamicDNS {
		return 0
	}
	return port
}

// requestChain returns the chain of virtualOutbound for requests, whose cluster differs from the one for connections.
func (b builder) requestChain(k virtualOutboundKey) *listenerv3.FilterChain {
	routes := rds.AllowAnyRoutes(k.http, k.mesh.AttemptCount())
	match := plainHTTP(k.tuning.HTTP10)
	match.TransportProtocol = "" // the HTTP inspector detects no protocol inside TLS
	return &listenerv3.FilterChain{
		Name: names.VirtualOutboundCatchall + "-http", FilterChainMatch: match,
		Filters: b.httpChainFilters(k.proxyContext, feature.Outbound, "outbound_"+names.VirtualOutbound+"_"+routes.Name+";", "", routes,
			0, protocols.Unsupported),
	}
}
