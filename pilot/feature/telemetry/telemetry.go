package telemetry

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// New returns the feature.
func New() *feature.Feature {
	return &feature.Feature{
		Name: "telemetry", Kinds: []*kinds.Kind{kinds.Telemetry},
		Part: feature.ListenersPart | feature.InboundPart, Select: selectTelemetry,
		Unsupported: unsupported, UnsupportedMesh: unsupportedMesh,
		Hooks: feature.Hooks{
			FiltersReadOf: filtersReadOf, HTTPFilters: httpFilters, NetworkFilters: networkFilters, Listeners: reports{},
		},
	}
}

const statsFilter = "istio.stats"

// filtersReadOf clears the fields that the filters of a chain do not depend on.
func filtersReadOf(c feature.Chain) feature.Chain {
	return feature.Chain{Proxy: feature.Proxy{Mesh: c.Mesh, Capabilities: c.Capabilities}, Direction: c.Direction, HTTP: c.HTTP,
		Selection: c.Selection}
}

func httpFilters(c feature.Chain) []*hcmv3.HttpFilter {
	if !c.Capabilities.Has(node.HTTPStats) {
		return nil
	}
	if config := stats(c); config != nil {
		return []*hcmv3.HttpFilter{envoy.HTTPFilter(statsFilter, config)}
	}
	return nil
}

func networkFilters(c feature.Chain) []*listenerv3.Filter {
	if c.HTTP || !c.Capabilities.Has(node.NetworkStats) {
		return nil
	}
	if config := stats(c); config != nil {
		return []*listenerv3.Filter{envoy.NetworkFilter(statsFilter, config)}
	}
	return nil
}

// stats returns the configuration of istio.stats, or nil if nothing is recorded.
func stats(c feature.Chain) *anypb.Any {
	p, any := metricsOf(c.Mesh, c.Selection, sideOf(c.Direction))
	if !any {
		return nil
	}
	p.noHostFallback = c.Direction != feature.Outbound
	return p.encode()
}

// reports adds access logs and tracing to listeners.
type reports struct{}

// ConnectionManager adds access logs and tracing.
func (reports) ConnectionManager(c feature.Chain, m *hcmv3.HttpConnectionManager) {
	m.AccessLog = append(m.AccessLog, accessLogs(c.Proxy, c.Direction, c.Selection, httpWriter)...)
	trace(c, m)
}

// TCPProxy adds the access logs of connections, except for connections to the proxy's own port.
func (reports) TCPProxy(c feature.Chain, p *tcpv3.TcpProxy) {
	if !c.Refused {
		p.AccessLog = append(p.AccessLog, accessLogs(c.Proxy, c.Direction, c.Selection, tcpWriter)...)
	}
}

// Listener adds access logs to the listeners that proxies bind.
func (reports) Listener(in feature.Listener, l *listenerv3.Listener) {
	if l.Name == names.VirtualInbound || l.Name == names.VirtualOutbound || in.Direction == feature.Gateway {
		l.AccessLog = append(l.AccessLog, accessLogs(in.Proxy, in.Direction, in.Selection, listenerWriter)...)
	}
}
