package hooks

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	rawbufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Hooks calls the hooks of some features.
type Hooks struct {
	features    []*feature.Feature
	ofListeners []*feature.Feature // the features that change listeners
	ofClusters  []*feature.Feature // the features that change clusters
	extensions  []*feature.Feature // the features with filters that proxies subscribe to
	transport   *feature.Feature   // the one that secures connections, or nil

	destination feature.Destination // implementation of the feature that applies traffic policies, or nil
	routes      feature.Routes      // implementation of the feature that makes routes, or nil

	filters *filterCache // nil if filters are made for each chain
}

// New returns the hooks of some features. keep caches filters that chains share.
func New(features []*feature.Feature, keep bool) *Hooks {
	h := &Hooks{features: features}
	if keep {
		h.filters = newFilterCache()
	}
	if i := slices.IndexFunc(features, func(f *feature.Feature) bool { return f.Transport != nil }); i >= 0 {
		h.transport = features[i]
	}
	for _, f := range features {
		if f.Listeners != nil {
			h.ofListeners = append(h.ofListeners, f)
		}
		if f.Cluster != nil {
			h.ofClusters = append(h.ofClusters, f)
		}
		if f.Extensions != nil {
			h.extensions = append(h.extensions, f)
		}
		if f.Destination != nil {
			h.destination = f.Destination
		}
		if f.Routes != nil {
			h.routes = f.Routes
		}
	}
	return h
}

// HTTPFilters returns the HTTP filters of a chain, in the order on the wire.
func (h *Hooks) HTTPFilters(c feature.Chain, s feature.Selections) []*hcmv3.HttpFilter {
	var list []*hcmv3.HttpFilter
	for _, f := range h.features {
		if f.HTTPFilters != nil {
			c.Selection = s.Of(f)
			list = append(list, filters(h, f, c, false, f.HTTPFilters)...)
		}
	}
	router := &routerv3.Router{SuppressEnvoyHeaders: c.Mesh != nil &&
		c.Mesh.GetDefaultConfig().GetProxyHeaders().GetEnvoyDebugHeaders().GetDisabled().GetValue()}
	return append(list, envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(router)))
}

// NetworkFilters returns the network filters of a chain that come before its last.
func (h *Hooks) NetworkFilters(c feature.Chain, s feature.Selections) []*listenerv3.Filter {
	var list []*listenerv3.Filter
	for _, f := range h.features {
		if f.NetworkFilters != nil {
			c.Selection = s.Of(f)
			list = append(list, filters(h, f, c, true, f.NetworkFilters)...)
		}
	}
	return list
}

// ChangeManager lets the features change the connection manager of a chain.
func (h *Hooks) ChangeManager(c feature.Chain, s feature.Selections, m *hcmv3.HttpConnectionManager) {
	for _, f := range h.ofListeners {
		c.Selection = s.Of(f)
		f.Listeners.ConnectionManager(c, m)
	}
}

// ChangeTCPProxy lets the features change the TCP proxy of a chain.
func (h *Hooks) ChangeTCPProxy(c feature.Chain, s feature.Selections, p *tcpv3.TcpProxy) {
	for _, f := range h.ofListeners {
		c.Selection = s.Of(f)
		f.Listeners.TCPProxy(c, p)
	}
}

// ChangeListener lets the features change a listener.
func (h *Hooks) ChangeListener(in feature.Listener, s feature.Selections, l *listenerv3.Listener) {
	for _, f := range h.ofListeners {
		in.Selection = s.Of(f)
		f.Listeners.Listener(in, l)
	}
}

// Extension identifies an object with a filter, and the filter's feature.
type Extension struct {
	object  *kinds.Object
	feature int // index of the feature in Hooks.extensions
}

// Extension returns the object that has the filter of a name. It returns false if there is none.
func (h *Hooks) Extension(name string, s feature.Selections) (Extension, bool) {
	for i, f := range h.extensions {
		if o := f.Extensions.Object(name, s.Of(f)); o != nil {
			return Extension{o, i}, true
		}
	}
	return Extension{}, false
}

// ExtensionConfig returns the configuration of a filter.
func (h *Hooks) ExtensionConfig(e Extension) *corev3.TypedExtensionConfig {
	return h.extensions[e.feature].Extensions.Config(e.object)
}

// ClusterSelections returns the Selections of the features that change clusters. Clusters depend on no others.
func (h *Hooks) ClusterSelections(s feature.Selections) feature.Selections {
	return s.For(h.ofClusters)
}

// ChangeCluster lets the features change a cluster.
func (h *Hooks) ChangeCluster(in feature.Cluster, s feature.Selections, c *clusterv3.Cluster) {
	for _, f := range h.ofClusters {
		in.Selection = s.Of(f)
		f.Cluster(in, c)
	}
}

// Mode returns which connections a workload accepts on a port, by the objects that the transport selects for it.
func (h *Hooks) Mode(s feature.Selection, port uint32) feature.Mode {
	if h.transport == nil {
		return feature.Disable
	}
	return h.transport.Transport.Mode(s, port)
}

// Ports returns the ports with a mode of their own.
func (h *Hooks) Ports(s feature.Selections) []uint32 {
	if h.transport == nil {
		return nil
	}
	return h.transport.Transport.Ports(h.TransportSelection(s))
}

// TransportSelection returns the objects that the transport selects.
func (h *Hooks) TransportSelection(s feature.Selections) feature.Selection {
	if h.transport == nil {
		return feature.Selection{}
	}
	return s.Of(h.transport)
}

// Downstream returns the transport socket of a chain that accepts secured connections.
func (h *Hooks) Downstream(d feature.Downstream) *corev3.TransportSocket {
	return h.transport.Transport.Downstream(d)
}

// Upstream returns the transport socket for secured connections to a service.
func (h *Hooks) Upstream(u feature.Upstream) *corev3.TransportSocket {
	if h.transport == nil {
		return Plaintext
	}
	return h.transport.Transport.Upstream(u)
}

// Choice returns how a cluster chooses among the endpoints of a service.
func (h *Hooks) Choice(m *mesh.Config, s *registry.Service, p traffic.Policy) feature.Choice {
	if h.destination == nil {
		return feature.Choice{}
	}
	return h.destination.Choice(m, s, p)
}

// ApplyPolicy applies load balancing, connection pool and outlier detection to a cluster.
func (h *Hooks) ApplyPolicy(p traffic.Policy, t feature.PolicyTarget, c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions) {
	if h.destination != nil {
		h.destination.Policy(p, t, c, options)
	}
}

// ApplyConnection applies the part of a policy for forwarded connections to a TCP proxy.
func (h *Hooks) ApplyConnection(c traffic.Connection, p *tcpv3.TcpProxy) {
	if h.destination != nil {
		h.destination.Connection(c, p)
	}
}

// ApplyProxyProtocol returns a transport socket around another that begins connections with a PROXY header.
func (h *Hooks) ApplyProxyProtocol(p *networkingv1alpha3.TrafficPolicy_ProxyProtocol,
	inner *corev3.TransportSocket) *corev3.TransportSocket {
	if h.destination == nil || p == nil {
		return inner
	}
	return h.destination.ProxyProtocol(p, inner)
}

// ApplyTLS secures the connections of a cluster by the settings of a policy.
func (h *Hooks) ApplyTLS(s *networkingv1alpha3.ClientTLSSettings, t feature.PolicyTLS, c *clusterv3.Cluster,
	options *httpv3.HttpProtocolOptions) {
	if h.destination != nil {
		h.destination.TLS(s, t, c, options)
	}
}

// HashPolicies returns the consistent hash by which requests to a port are balanced over the endpoints.
func (h *Hooks) HashPolicies(r traffic.Rule, port uint32) []*routev3.RouteAction_HashPolicy {
	if h.destination == nil {
		return nil
	}
	return h.destination.Hash(r, port)
}

// HasRoutes reports whether an object has any route.
func (h *Hooks) HasRoutes(o feature.RouteOptions) bool { return h.routes != nil && h.routes.Any(o) }

// HTTPRoutes returns the routes of several objects, by precedence.
func (h *Hooks) HTTPRoutes(all []feature.RouteOptions) []*routev3.Route {
	if h.routes == nil {
		return nil
	}
	lists := make([][]*routev3.Route, len(all))
	for i, o := range all {
		lists[i] = h.routes.HTTP(o)
	}
	return h.routes.Join(lists...)
}

// ConnectionRoutes returns the routes of an object for connections: for TLS that is not terminated, or else TCP.
func (h *Hooks) ConnectionRoutes(o feature.RouteOptions, tls bool) []feature.ConnectionRoute {
	switch {
	case h.routes == nil:
		return nil
	case tls:
		return h.routes.TLS(o)
	}
	return h.routes.TCP(o)
}

// HasPolicies reports whether there is any object that decides about TLS of connections.
func (h *Hooks) HasPolicies(r view.Reader) bool {
	return h.transport != nil && slices.ContainsFunc(h.transport.Kinds, r.HasObjects)
}

// PolicySelector returns a function that selects the objects that decide about TLS of connections to a workload of a
// namespace. It may be called only if HasPolicies.
func (h *Hooks) PolicySelector(r view.Reader, namespace string) func(feature.Workload) feature.Selection {
	return h.transport.Select(r, namespace)
}

// NoTLS reports whether no workload of a namespace accepts secured connections, except those with policies of their
// own.
func (h *Hooks) NoTLS(r view.Reader, namespace string) bool {
	if h.transport == nil {
		return true
	}
	return h.HasPolicies(r) && h.Mode(h.PolicySelector(r, namespace)(feature.Workload{}), 0) == feature.Disable
}

// Plaintext is the transport socket without TLS. It is shared, because a mesh has a thousand of them, and must not be
// changed.
var Plaintext = &corev3.TransportSocket{
	Name:       "envoy.transport_sockets.raw_buffer",
	ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(&rawbufferv3.RawBuffer{})},
}
