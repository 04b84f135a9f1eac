package translate

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/types/known/anypb"
	alpnv2alpha1 "istio.io/api/envoy/config/filter/http/alpn/v2alpha1"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/authz"
	"github.com/istiod-lite/istiod-lite/pilot/feature/telemetry"
	"github.com/istiod-lite/istiod-lite/registry"
)

// direction is the direction of the traffic of a connection manager.
type direction int

const (
	outbound direction = iota // a workload's own calls
	inbound                   // calls to the workload
	ingress                   // calls to a gateway
)

// proxyContext is what every listener of a proxy depends on.
type proxyContext struct {
	mesh           *mesh.Config
	capabilities   node.Capabilities
	tags           feature.Tags
	selections     feature.Selections
	http10         bool
	denyAll        bool                // nothing may pass: a policy that is not translated selects the workload
	internalRanges frozen.List[string] // of a gateway: ranges of addresses that are inside the mesh
}

func (v *view) proxyContext(c node.Capabilities, t feature.Tags, http10 bool) proxyContext {
	return proxyContext{mesh: v.Mesh, capabilities: c, tags: t, http10: http10}
}

// connectionManager makes the HTTP connection manager of one chain. Its routes are the inline ones, or else come by RDS
// under the name route.
func (c proxyContext) connectionManager(d direction, statPrefix, route string, inline *routev3.RouteConfiguration, p registry.Protocol) *listenerv3.Filter {
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:                   statPrefix,
		Proxy_100Continue:            true,
		StreamIdleTimeout:            envoy.Duration(0),
		NormalizePath:                envoy.Bool(true),
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		UseRemoteAddress:             envoy.Bool(d == ingress),
		UpgradeConfigs:               []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		RequestIdExtension:           &hcmv3.RequestIDExtension{TypedConfig: envoy.Any(&uuidv3.UuidRequestIdConfig{})},
		HttpFilters:                  c.httpFilters(d, p),
	}
	if c.mesh.GetEnableTracing() {
		m.Tracing = telemetry.Tracing(c.mesh, c.tags)
	}
	c.normalizePath(m)
	if inline != nil {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: inline}
	} else {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: envoy.ADS(), RouteConfigName: route}}
	}
	switch d {
	case inbound:
		m.ServerName = serverName
		m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: envoy.Bool(true), Dns: true, Uri: true}
		if p.IsHTTP2() {
			m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
		}
	case ingress:
		m.ServerName = serverName
		m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: envoy.Bool(true), Cert: true, Dns: true, Uri: true}
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
		m.InternalAddressConfig = c.internalAddresses()
	}
	if d == outbound && route == names.HTTPProxyRoute {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AllowAbsoluteUrl: envoy.Bool(true)}
	}
	if c.http10 {
		if m.HttpProtocolOptions == nil {
			m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
		}
		m.HttpProtocolOptions.AcceptHttp_10 = true
	}
	return envoy.NetworkFilter("envoy.filters.network.http_connection_manager", envoy.Any(m))
}

// serverName is the server header in responses of inbound and gateway listeners.
const serverName = "istio-envoy"

func (c proxyContext) normalizePath(m *hcmv3.HttpConnectionManager) {
	switch c.mesh.GetPathNormalization().GetNormalization() {
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_NONE:
		m.NormalizePath = envoy.Bool(false)
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		m.MergeSlashes = true
	case meshv1alpha1.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		m.MergeSlashes = true
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}

// internalAddresses returns the ranges inside the mesh, or nil where none are configured: then Envoy's default applies.
func (c proxyContext) internalAddresses() *hcmv3.HttpConnectionManager_InternalAddressConfig {
	var ranges []*corev3.CidrRange
	for r := range c.internalRanges.All {
		p := netip.MustParsePrefix(r)
		ranges = append(ranges, &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: envoy.UInt32(uint32(p.Bits()))})
	}
	if ranges == nil {
		return nil
	}
	return &hcmv3.HttpConnectionManager_InternalAddressConfig{CidrRanges: ranges}
}

// httpFilters returns the HTTP filters of a chain; their order is the order on the wire. A proxy gets a filter of
// Istio's own build only if it lists that.
func (c proxyContext) httpFilters(d direction, p registry.Protocol) []*hcmv3.HttpFilter {
	var f []*hcmv3.HttpFilter
	if c.capabilities.Has(node.HTTPPeerMetadata) {
		f = append(f, envoy.HTTPFilter("istio.metadata_exchange", peerMetadata(d)))
	}
	if c.denyAll && d != outbound {
		f = append(f, authz.DenyAllHTTP())
	}
	if p == registry.GRPCWeb {
		f = append(f, envoy.HTTPFilter("envoy.filters.http.grpc_web", envoy.Any(&grpcwebv3.GrpcWeb{})))
	}
	f = append(f, envoy.HTTPFilter("envoy.filters.http.grpc_stats", envoy.Any(&grpcstatsv3.FilterConfig{
		EmitFilterState:        true,
		PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: envoy.Bool(false)},
	})))
	if d != inbound && c.capabilities.Has(node.ALPNFilter) {
		f = append(f, envoy.HTTPFilter("istio.alpn", envoy.Any(meshALPN())))
	}
	f = append(f,
		envoy.HTTPFilter("envoy.filters.http.fault", envoy.Any(&faultv3.HTTPFault{})),
		envoy.HTTPFilter("envoy.filters.http.cors", envoy.Any(&corsv3.Cors{})),
	)
	if telemetry.StatsEnabled(c.mesh) && c.capabilities.Has(node.HTTPStats) {
		f = append(f, envoy.HTTPFilter("istio.stats", statsConfig()))
	}
	return append(f, envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(&routerv3.Router{})))
}

func statsConfig() *anypb.Any { return envoy.Empty("type.googleapis.com/stats.PluginConfig") }

// peerMetadata configures the extension with which proxies exchange their workloads' metadata in HTTP headers.
func peerMetadata(d direction) *anypb.Any {
	side := "upstream"
	if d == inbound {
		side = "downstream"
	}
	headers := map[string]any{"istio_headers": map[string]any{}}
	return envoy.TypedStruct("io.istio.http.peer_metadata.Config", map[string]any{
		side + "_discovery":   []any{headers, map[string]any{"workload_discovery": map[string]any{}}},
		side + "_propagation": []any{headers},
	})
}

// meshALPN has mTLS connections announce their protocol, so that the other side need not sniff it.
func meshALPN() *alpnv2alpha1.FilterConfig {
	return &alpnv2alpha1.FilterConfig{AlpnOverride: []*alpnv2alpha1.FilterConfig_AlpnOverride{
		{UpstreamProtocol: alpnv2alpha1.FilterConfig_HTTP10, AlpnOverride: []string{"istio-http/1.0", "istio", "http/1.0"}},
		{UpstreamProtocol: alpnv2alpha1.FilterConfig_HTTP11, AlpnOverride: []string{"istio-http/1.1", "istio", "http/1.1"}},
		{UpstreamProtocol: alpnv2alpha1.FilterConfig_HTTP2, AlpnOverride: []string{"istio-h2", "istio", "h2"}},
	}}
}
