package destinationrule

import (
	"net"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
)

// Connection implements feature.Destination.
func (policies) Connection(c traffic.Connection, p *tcpv3.TcpProxy) {
	if c.MaxDuration > 0 {
		p.MaxDownstreamConnectionDuration = envoy.Duration(c.MaxDuration)
	}
	if c.IdleTimeout != 0 {
		p.IdleTimeout = envoy.Duration(max(c.IdleTimeout, 0))
	}
	if t := c.Tunnel; t != nil {
		p.TunnelingConfig = &tcpv3.TcpProxy_TunnelingConfig{
			Hostname: net.JoinHostPort(t.TargetHost, strconv.FormatUint(uint64(t.TargetPort), 10)),
			UsePost:  t.Protocol == "POST",
		}
	}
	if c.SourceHash {
		p.HashPolicy = []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
	}
}

// ProxyProtocol implements feature.Destination.
func (policies) ProxyProtocol(p *networkingv1alpha3.TrafficPolicy_ProxyProtocol, inner *corev3.TransportSocket) *corev3.TransportSocket {
	config := &proxyprotocolv3.ProxyProtocolUpstreamTransport{Config: &corev3.ProxyProtocolConfig{}, TransportSocket: inner}
	if p.Version == networkingv1alpha3.TrafficPolicy_ProxyProtocol_V2 {
		config.Config.Version = corev3.ProxyProtocolConfig_V2
	}
	return &corev3.TransportSocket{
		Name: "envoy.transport_sockets.upstream_proxy_protocol", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(config)},
	}
}
