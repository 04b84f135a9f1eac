package lds

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// applyHeaders applies the settings of headers to a connection manager.
func (c proxyContext) applyHeaders(d feature.Direction, m *hcmv3.HttpConnectionManager) {
	h := c.mesh.GetDefaultConfig().GetProxyHeaders()
	switch s := h.GetServer(); {
	case s.GetDisabled().GetValue():
		m.ServerName, m.ServerHeaderTransformation = "", hcmv3.HttpConnectionManager_PASS_THROUGH
	case s.GetValue() != "":
		m.ServerName = s.Value
	}
	if h.GetRequestId().GetDisabled().GetValue() {
		m.GenerateRequestId = envoy.Bool(false)
	}
	m.AppendXForwardedPort = h.GetXForwardedPort().GetEnabled().GetValue()
	if envoy.PreservesCase(c.mesh) {
		if m.HttpProtocolOptions == nil {
			m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{}
		}
		m.HttpProtocolOptions.HeaderKeyFormat = envoy.PreserveCase()
	}
	switch d {
	case feature.Inbound:
		if f := h.GetForwardedClientCert(); f != meshv1alpha1.ForwardClientCertDetails_UNDEFINED {
			m.ForwardClientCertDetails = forwardCertificate(f)
		}
		if s, of := h.GetSetCurrentClientCertDetails(), m.SetCurrentClientCertDetails; s != nil {
			if s.Subject != nil {
				of.Subject = s.Subject
			}
			of.Cert, of.Chain = s.Cert.GetValue(), s.Chain.GetValue()
			of.Dns, of.Uri = s.Dns == nil || s.Dns.Value, s.Uri == nil || s.Uri.Value
		}
	case feature.Gateway:
		t := c.mesh.GetDefaultConfig().GetGatewayTopology()
		m.XffNumTrustedHops = t.GetNumTrustedProxies()
		if f := t.GetForwardClientCertDetails(); f != meshv1alpha1.ForwardClientCertDetails_UNDEFINED {
			m.ForwardClientCertDetails = forwardCertificate(f)
			if f != meshv1alpha1.ForwardClientCertDetails_APPEND_FORWARD && f != meshv1alpha1.ForwardClientCertDetails_SANITIZE_SET {
				m.SetCurrentClientCertDetails = nil
			}
		}
	}
}

// forwardCertificate returns how Envoy handles the header with the client's certificate. The values have the same
// names.
func forwardCertificate(f meshv1alpha1.ForwardClientCertDetails) hcmv3.HttpConnectionManager_ForwardClientCertDetails {
	return hcmv3.HttpConnectionManager_ForwardClientCertDetails(hcmv3.HttpConnectionManager_ForwardClientCertDetails_value[f.String()])
}

// gatewayFilters returns the listener filter that reads the PROXY headers of a gateway's clients.
func (c proxyContext) gatewayFilters() []*listenerv3.ListenerFilter {
	if c.mesh.GetDefaultConfig().GetGatewayTopology().GetProxyProtocol() == nil {
		return nil
	}
	return []*listenerv3.ListenerFilter{listenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocolv3.ProxyProtocol{}, nil)}
}

// connectionSettings returns the limits and timeouts of connections in a direction. At a gateway they include the
// defaults of its profile.
func (c proxyContext) connectionSettings(d feature.Direction) *meshv1alpha1.ProxyConfig_ConnectionSettings {
	s := c.mesh.GetDefaultConfig().GetConnectionSettings()
	if d != feature.Gateway || s.GetProfile() != meshv1alpha1.ProxyConfig_ConnectionSettings_EDGE {
		return s
	}
	seconds := func(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }
	e := &meshv1alpha1.ProxyConfig_ConnectionSettings{
		ListenerPerConnectionBufferLimitBytes: cmp.Or(s.ListenerPerConnectionBufferLimitBytes, wrapperspb.Int32(32<<10)),
		HttpIdleTimeout:                       cmp.Or(s.HttpIdleTimeout, seconds(3600)),
		HttpRequestTimeout:                    cmp.Or(s.HttpRequestTimeout, seconds(300)),
		HttpRequestHeadersTimeout:             cmp.Or(s.HttpRequestHeadersTimeout, seconds(60)),
		HttpStreamIdleTimeout:                 cmp.Or(s.HttpStreamIdleTimeout, seconds(300)),
		HttpMaxConcurrentStreams:              cmp.Or(s.HttpMaxConcurrentStreams, wrapperspb.Int32(100)),
		Http2InitialStreamWindowSize:          cmp.Or(s.Http2InitialStreamWindowSize, wrapperspb.Int32(64<<10)),
		Http2InitialConnectionWindowSize:      cmp.Or(s.Http2InitialConnectionWindowSize, wrapperspb.Int32(1<<20)),
		HttpMergeSlashes:                      cmp.Or(s.HttpMergeSlashes, wrapperspb.Bool(true)),
		HttpHeadersWithUnderscoresAction: cmp.Or(s.HttpHeadersWithUnderscoresAction,
			meshv1alpha1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST),
		HttpPathWithEscapedSlashesAction: cmp.Or(s.HttpPathWithEscapedSlashesAction,
			meshv1alpha1.ProxyConfig_ConnectionSettings_UNESCAPE_AND_REDIRECT),
		HttpMaxConnectionDuration: s.HttpMaxConnectionDuration, HttpDrainTimeout: s.HttpDrainTimeout,
		HttpMaxStreamDuration: s.HttpMaxStreamDuration,
	}
	return e
}

// applyConnectionSettings applies the limits and timeouts of connections to a connection manager.
func (c proxyContext) applyConnectionSettings(d feature.Direction, m *hcmv3.HttpConnectionManager) {
	s := c.connectionSettings(d)
	if s == nil {
		return
	}
	if s.HttpIdleTimeout != nil || s.HttpMaxConnectionDuration != nil || s.HttpMaxStreamDuration != nil ||
		s.HttpHeadersWithUnderscoresAction != 0 {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{
			IdleTimeout:           cmp.Or(s.HttpIdleTimeout, m.CommonHttpProtocolOptions.GetIdleTimeout()),
			MaxConnectionDuration: s.HttpMaxConnectionDuration, MaxStreamDuration: s.HttpMaxStreamDuration,
		}
		if a := s.HttpHeadersWithUnderscoresAction; a != 0 { // Envoy has the same values, beginning with 0
			m.CommonHttpProtocolOptions.HeadersWithUnderscoresAction = corev3.HttpProtocolOptions_HeadersWithUnderscoresAction(a - 1)
		}
	}
	if s.HttpMaxConcurrentStreams.GetValue() > 0 || s.Http2InitialStreamWindowSize != nil || s.Http2InitialConnectionWindowSize != nil {
		if m.Http2ProtocolOptions == nil {
			m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
		}
		if n := s.HttpMaxConcurrentStreams.GetValue(); n > 0 {
			m.Http2ProtocolOptions.MaxConcurrentStreams = envoy.UInt32(uint32(n))
		}
		if w := s.Http2InitialStreamWindowSize; w != nil {
			m.Http2ProtocolOptions.InitialStreamWindowSize = envoy.UInt32(uint32(w.Value))
		}
		if w := s.Http2InitialConnectionWindowSize; w != nil {
			m.Http2ProtocolOptions.InitialConnectionWindowSize = envoy.UInt32(uint32(w.Value))
		}
	}
	m.DrainTimeout, m.RequestTimeout, m.RequestHeadersTimeout = s.HttpDrainTimeout, s.HttpRequestTimeout, s.HttpRequestHeadersTimeout
	if s.HttpStreamIdleTimeout != nil {
		m.StreamIdleTimeout = s.HttpStreamIdleTimeout
	}
	if s.HttpMergeSlashes != nil {
		m.MergeSlashes = s.HttpMergeSlashes.Value
	}
	if a := s.HttpPathWithEscapedSlashesAction; a != 0 {
		m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction(a)
	}
}

// limitBuffers limits the buffers of each connection to a listener.
func (c proxyContext) limitBuffers(d feature.Direction, l *listenerv3.Listener) {
	if n := c.connectionSettings(d).GetListenerPerConnectionBufferLimitBytes(); n.GetValue() > 0 {
		l.PerConnectionBufferLimitBytes = envoy.UInt32(uint32(n.Value))
	}
}
