package lds

import (
	"cmp"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/translate/rds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// proxyContext is the input that all listeners of a proxy share.
type proxyContext struct {
	mesh           *mesh.Config
	capabilities   node.Capabilities
	tags           feature.Tags
	selections     feature.Selections
	tuning         node.Tuning
	resolves       bool                // whether called hosts are resolved per request or connection
	sessions       bool                // whether routes may send the requests of a session to one endpoint
	ipv4, ipv6     bool                // address families in which they are resolved
	internalRanges frozen.List[string] // address ranges inside the mesh, whose forwarding headers are trusted
}

func newProxyContext(v *view.View, settings string, c node.Capabilities, t feature.Tags, tuning node.Tuning,
	s feature.Selections) proxyContext {
	return proxyContext{mesh: v.Mesh().With(settings), capabilities: c, tags: t, selections: s, tuning: tuning}
}

// outboundContext returns the proxyContext of listeners for outgoing traffic, and of a router's.
func outboundContext(v *view.View, c cohort.Inputs) proxyContext {
	p := newProxyContext(v, c.Client.Settings, c.Client.Capabilities, c.Outbound.Tags, c.Outbound.Tuning, c.Outbound.Selections)
	if p.resolves = v.ResolvesHosts() || c.Client.Type != node.Router && v.DynamicDNS(); p.resolves {
		p.ipv4, p.ipv6 = c.Client.IPv4, c.Client.IPv6
	}
	p.sessions = v.PersistentSessions()
	if n := v.Networks(); n != nil && (c.Client.Type == node.Router || p.tuning.RemoteAddress) {
		p.internalRanges = n.Ranges
	}
	return p
}

func (c proxyContext) proxy() feature.Proxy {
	return feature.Proxy{Mesh: c.mesh, Capabilities: c.capabilities, Tags: c.tags}
}

// chain returns the argument of hooks for a chain. The port is as in feature.Chain.
func (c proxyContext) chain(d feature.Direction, http bool, port uint32, p protocols.Protocol) feature.Chain {
	return feature.Chain{Proxy: c.proxy(), Direction: d, HTTP: http, Protocol: p, Port: port}
}

// resource lets the hooks change a listener and encodes it.
func (b builder) resource(c proxyContext, d feature.Direction, l *listenerv3.Listener) *envoy.Resource {
	c.limitBuffers(d, l)
	b.ChangeListener(feature.Listener{Proxy: c.proxy(), Direction: d}, c.selections, l)
	return envoy.NewResource(l.Name, l)
}

// httpChainFilters makes the network filters of a chain for HTTP. Its routes are the inline ones, or else come by RDS
// under the name route.
func (b builder) httpChainFilters(c proxyContext, d feature.Direction, statPrefix, route string, inline *routev3.RouteConfiguration,
	port uint32, p protocols.Protocol) []*listenerv3.Filter {
	chain := c.chain(d, true, port, p)
	return append(b.NetworkFilters(chain, c.selections), b.connectionManager(c, chain, statPrefix, route, inline))
}

// connectionManager makes the HTTP connection manager of a chain.
func (b builder) connectionManager(c proxyContext, chain feature.Chain, statPrefix, route string,
	inline *routev3.RouteConfiguration) *listenerv3.Filter {
	d := chain.Direction
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:                   statPrefix,
		Proxy_100Continue:            true,
		StreamIdleTimeout:            envoy.Duration(0),
		NormalizePath:                envoy.Bool(true),
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		UseRemoteAddress:             envoy.Bool(d == feature.Gateway || c.usesRemoteAddress(d, route)),
		UpgradeConfigs:               []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		RequestIdExtension:           &hcmv3.RequestIDExtension{TypedConfig: envoy.Any(&uuidv3.UuidRequestIdConfig{})},
		HttpFilters:                  b.HTTPFilters(chain, c.selections),
	}
	if c.resolves {
		m.HttpFilters = slices.Insert(m.HttpFilters, len(m.HttpFilters)-1, c.hostResolver()) // before the router
	}
	if c.sessions {
		m.HttpFilters = slices.Insert(m.HttpFilters, len(m.HttpFilters)-1, rds.SessionFilter(registry.Session{}))
	}
	c.normalizePath(m)
	if inline != nil {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: inline}
	} else {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: envoy.ADS(), RouteConfigName: route}}
	}
	switch d {
	case feature.Inbound:
		m.ServerName = serverName
		m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: envoy.Bool(true), Dns: true, Uri: true}
		if chain.Protocol.IsHTTP2() {
			m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
		}
	case feature.Gateway:
		m.ServerName = serverName
		m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: envoy.Bool(true), Cert: true,
			Dns: true, Uri: true}
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
		m.InternalAddressConfig = c.internalAddresses()
		if chain.Protocol == protocols.HTTP3 {
			m.CodecType, m.Http3ProtocolOptions = hcmv3.HttpConnectionManager_HTTP3, &corev3.Http3ProtocolOptions{}
		}
	}
	if c.usesRemoteAddress(d, route) {
		m.InternalAddressConfig = c.internalAddresses()
	}
	if d == feature.Outbound && route == names.HTTPProxyRoute {
		m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AllowAbsoluteUrl: envoy.Bool(true)}
	}
	if c.tuning.HTTP10 {
		if m.HttpProtocolOptions == nil {
			m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
		}
		m.HttpProtocolOptions.AcceptHttp_10 = true
	}
	c.applyHeaders(d, m)
	if t := c.idleTimeout(); t != nil {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: t}
	}
	c.applyConnectionSettings(d, m)
	b.ChangeManager(chain, c.selections, m)
	return envoy.NetworkFilter("envoy.filters.network.http_connection_manager", envoy.Any(m))
}

// usesRemoteAddress reports whether a sidecar takes the address of its application as the origin of a request. Envoy
// keeps the headers that the application sets for Envoy if the mesh's networks have the address.
func (c proxyContext) usesRemoteAddress(d feature.Direction, route string) bool {
	return c.tuning.RemoteAddress && d == feature.Outbound && route != names.HTTPProxyRoute
}

// handshakeTimeout returns how long a handshake of a client may take, or nil for any time. It bounds the memory of slow
// handshakes.
func (c proxyContext) handshakeTimeout() *durationpb.Duration {
	if c.tuning.HandshakeTimeout < 0 {
		return nil
	}
	return envoy.Duration(cmp.Or(c.tuning.HandshakeTimeout, node.DefaultHandshakeTimeout))
}

// idleTimeout returns the idle timeout of connections in the proxy's own metadata, or nil.
func (c proxyContext) idleTimeout() *durationpb.Duration {
	if c.tuning.IdleTimeout == 0 {
		return nil
	}
	return envoy.Duration(max(c.tuning.IdleTimeout, 0))
}

// balanceExactly makes Envoy distribute a listener's connections equally over its threads.
func balanceExactly(l *listenerv3.Listener) {
	l.ConnectionBalanceConfig = &listenerv3.Listener_ConnectionBalanceConfig{
		BalanceType: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance_{
			ExactBalance: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance{},
		},
	}
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

// internalAddresses returns the ranges inside the mesh, or nil if none are configured: then Envoy's default applies.
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
