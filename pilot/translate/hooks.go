package translate

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// hooks calls the hooks of the features. Its methods are the builders that need some; they are pure functions of their
// keys.
type hooks struct {
	features  []*feature.Feature
	transport *feature.Feature // the one that secures connections, or nil
}

func newHooks(features []*feature.Feature) *hooks {
	h := &hooks{features: features}
	if i := slices.IndexFunc(features, func(f *feature.Feature) bool { return f.Transport != nil }); i >= 0 {
		h.transport = features[i]
	}
	return h
}

// requestFilters returns the HTTP filters of a chain; their order is the order on the wire.
func (h *hooks) requestFilters(c feature.Chain, s feature.Selections) []*hcmv3.HttpFilter {
	var filters []*hcmv3.HttpFilter
	for _, f := range h.features {
		if f.HTTPFilters != nil {
			c.Selection = s.Of(f)
			filters = append(filters, f.HTTPFilters(c)...)
		}
	}
	return append(filters, envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(&routerv3.Router{})))
}

// networkFilters returns the network filters of a chain that come before its last.
func (h *hooks) networkFilters(c feature.Chain, s feature.Selections) []*listenerv3.Filter {
	var filters []*listenerv3.Filter
	for _, f := range h.features {
		if f.NetworkFilters != nil {
			c.Selection = s.Of(f)
			filters = append(filters, f.NetworkFilters(c)...)
		}
	}
	return filters
}

// changeManager lets the features change the connection manager of a chain.
func (h *hooks) changeManager(c feature.Chain, s feature.Selections, m *hcmv3.HttpConnectionManager) {
	for _, f := range h.features {
		if f.ConnectionManager != nil {
			c.Selection = s.Of(f)
			f.ConnectionManager(c, m)
		}
	}
}

// changeCluster lets the features change a cluster for outgoing traffic.
func (h *hooks) changeCluster(in feature.Cluster, c *clusterv3.Cluster) {
	for _, f := range h.features {
		if f.Cluster != nil {
			f.Cluster(in, c)
		}
	}
}

// mode returns how a workload takes connections on a port, by the objects that the transport selects for it.
func (h *hooks) mode(s feature.Selection, port uint32) feature.Mode {
	if h.transport == nil {
		return feature.Disable
	}
	return h.transport.Transport.Mode(s, port)
}

// ports returns the ports with a mode of their own.
func (h *hooks) ports(s feature.Selections) []uint32 {
	if h.transport == nil {
		return nil
	}
	return h.transport.Transport.Ports(h.transportSelection(s))
}

// transportSelection returns the objects that the transport selects.
func (h *hooks) transportSelection(s feature.Selections) feature.Selection {
	if h.transport == nil {
		return feature.Selection{}
	}
	return s.Of(h.transport)
}

func (h *hooks) downstream(d feature.Downstream) *corev3.TransportSocket {
	return h.transport.Transport.Downstream(d)
}

func (h *hooks) upstream(u feature.Upstream) *corev3.TransportSocket {
	if h.transport == nil {
		return plaintext
	}
	return h.transport.Transport.Upstream(u)
}

// hasTransportPolicies reports whether there is any object by which connections are secured.
func (v *view) hasTransportPolicies() bool {
	if v.t.hooks.transport == nil {
		return false
	}
	for _, k := range v.t.hooks.transport.Kinds {
		if v.HasObjects(k) {
			return true
		}
	}
	return false
}

// plaintext is the transport socket without TLS. It is never written to: a mesh has a thousand of them.
var plaintext = &corev3.TransportSocket{
	Name: "envoy.transport_sockets.raw_buffer", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(&rawbufferv3.RawBuffer{})},
}
