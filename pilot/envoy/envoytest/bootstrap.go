package envoytest

import (
	"fmt"
	"strings"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	wasmextv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// message decodes a resource and removes the filters that only Istio's Envoy has.
func message(r *envoy.Resource) (proto.Message, error) {
	var a anypb.Any
	if err := proto.Unmarshal(r.Bytes(), &a); err != nil {
		return nil, err
	}
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *clusterv3.Cluster:
		m.Filters = without(m.Filters)
	case *listenerv3.Listener:
		m.ListenerFilters = without(m.ListenerFilters)
		for _, c := range append(m.FilterChains, m.DefaultFilterChain) {
			if c == nil {
				continue
			}
			c.Filters = without(c.Filters)
			for _, f := range c.Filters {
				h := &hcmv3.HttpConnectionManager{}
				if !f.GetTypedConfig().MessageIs(h) {
					continue
				}
				if err := f.GetTypedConfig().UnmarshalTo(h); err != nil {
					return nil, err
				}
				h.HttpFilters = without(h.HttpFilters)
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Any(h)}
			}
		}
	case *corev3.TypedExtensionConfig:
		return m, fetched(m)
	}
	return m, nil
}

// fetched replaces the source of a WebAssembly module by a remote one with a checksum. Agents fetch modules and check
// them, and the files of a proxy do not exist here.
func fetched(c *corev3.TypedExtensionConfig) error {
	fetch := func(p *wasmextv3.PluginConfig) {
		if code := p.GetVmConfig().GetCode(); code != nil {
			code.Specifier = &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{Sha256: "x", HttpUri: &corev3.HttpUri{
				Uri: "https://example.com/x", Timeout: durationpb.New(1e9), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: "agent"},
			}}}
		}
	}
	h, n := &wasmv3.Wasm{}, &networkwasmv3.Wasm{}
	switch {
	case c.TypedConfig.MessageIs(h):
		if err := c.TypedConfig.UnmarshalTo(h); err != nil {
			return err
		}
		fetch(h.Config)
		c.TypedConfig = envoy.Any(h)
	case c.TypedConfig.MessageIs(n):
		if err := c.TypedConfig.UnmarshalTo(n); err != nil {
			return err
		}
		fetch(n.Config)
		c.TypedConfig = envoy.Any(n)
	}
	return nil
}

// without returns filters except for those of Istio's Envoy alone.
func without[T interface{ GetTypedConfig() *anypb.Any }](filters []T) []T {
	var list []T
	for _, f := range filters {
		if url := f.GetTypedConfig().GetTypeUrl(); !istios(url) &&
			!(strings.HasSuffix(url, ".TypedStruct") && strings.Contains(string(f.GetTypedConfig().GetValue()), "istio")) {
			list = append(list, f)
		}
	}
	return list
}

func istios(url string) bool {
	url = strings.TrimPrefix(url, "type.googleapis.com/")
	return strings.HasPrefix(url, "io.istio.") || strings.HasPrefix(url, "istio.") ||
		strings.HasPrefix(url, "envoy.tcp.metadataexchange.") || url == "stats.PluginConfig"
}

// bootstrap returns a bootstrap with static resources, and with a cluster for each name.
func bootstrap(all []resource, names map[string]bool) *bootstrapv3.Bootstrap {
	s := &bootstrapv3.Bootstrap_StaticResources{}
	clusters, addresses, listeners := map[string]int{}, map[string]bool{}, map[string]int{}
	// Clusters that every proxy has in its own bootstrap and that resources refer to.
	for _, name := range []string{"xds-grpc", "sds-grpc", "agent", "prometheus_stats", "zipkin"} {
		clusters[name]++
		s.Clusters = append(s.Clusters, &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(1e9),
			TypedExtensionProtocolOptions: map[string]*anypb.Any{
				"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoy.Any(
					&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: envoy.ExplicitHTTP2()}),
			}})
	}
	for i, r := range all {
		switch m := proto.Clone(r.message).(type) {
		case *clusterv3.Cluster:
			if clusters[m.Name]++; clusters[m.Name] > 1 {
				m.Name = fmt.Sprintf("%s (%d)", m.Name, i)
			}
			s.Clusters = append(s.Clusters, m)
		case *endpointv3.ClusterLoadAssignment:
			s.Clusters = append(s.Clusters, &clusterv3.Cluster{Name: fmt.Sprintf("assignment %d", i), ConnectTimeout: durationpb.New(1e9),
				LoadAssignment: m})
		case *listenerv3.Listener:
			if listeners[m.Name]++; listeners[m.Name] > 1 {
				m.Name = fmt.Sprintf("%s (%d)", m.Name, i)
			}
			distinct(addresses, m.Address)
			for _, a := range m.AdditionalAddresses {
				distinct(addresses, a.Address)
			}
			s.Listeners = append(s.Listeners, m)
		case *routev3.RouteConfiguration:
			m.ValidateClusters = wrapperspb.Bool(false)
			m.Vhds = nil
			s.Listeners = append(s.Listeners, around(addresses, fmt.Sprintf("routes %d", i), m))
		case *corev3.TypedExtensionConfig:
			if m.TypedConfig.MessageIs(&networkwasmv3.Wasm{}) {
				l := around(addresses, fmt.Sprintf("filter %d", i), &routev3.RouteConfiguration{})
				l.FilterChains[0].Filters = append([]*listenerv3.Filter{envoy.NetworkFilter(m.Name, m.TypedConfig)}, l.FilterChains[0].Filters...)
				s.Listeners = append(s.Listeners, l)
				continue
			}
			filter := &hcmv3.HttpFilter{Name: m.Name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: m.TypedConfig}}
			s.Listeners = append(s.Listeners, around(addresses, fmt.Sprintf("filter %d", i), &routev3.RouteConfiguration{}, filter))
		}
	}
	for name := range names {
		if clusters[name] == 0 {
			s.Clusters = append(s.Clusters, &clusterv3.Cluster{Name: name, ConnectTimeout: durationpb.New(1e9)})
		}
	}
	return &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: "sidecar~127.0.0.1~x.x~x.svc.cluster.local", Cluster: "x"}, StaticResources: s,
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "xds-grpc"},
			}}},
		}},
	}
}

// around returns a listener that contains routes and HTTP filters.
func around(addresses map[string]bool, name string, routes *routev3.RouteConfiguration, filters ...*hcmv3.HttpFilter) *listenerv3.Listener {
	l := &listenerv3.Listener{Name: name, Address: envoy.Address("127.0.0.1", 1),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
			envoy.NetworkFilter("envoy.filters.network.http_connection_manager", envoy.Any(&hcmv3.HttpConnectionManager{
				StatPrefix: "x", RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes},
				HttpFilters: append(filters, envoy.HTTPFilter("envoy.filters.http.router", envoy.Any(&routerv3.Router{}))),
			})),
		}}}}
	distinct(addresses, l.Address)
	return l
}

// distinct changes the port of an address, or the path of a socket, until no other listener uses it.
func distinct(taken map[string]bool, a *corev3.Address) {
	for key := func() string { return envoy.Any(a).String() }; taken[key()]; {
		if s := a.GetSocketAddress(); s != nil {
			s.PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: s.GetPortValue()%65535 + 1}
		} else if p := a.GetPipe(); p != nil {
			p.Path += "x"
		}
	}
	taken[envoy.Any(a).String()] = true
}
