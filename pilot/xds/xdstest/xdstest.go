package xdstest

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// Resource returns a resource whose body is an untyped Any with its name and version.
func Resource(name, version string) *envoy.Resource {
	body := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), name+"="+version)
	return &envoy.Resource{Name: name, Version: version, Body: body}
}

// Canary is in the content of every Secret.
const Canary = "canary-in-a-secret"

// Secret returns a secret whose content depends on its version.
func Secret(name, version string) *envoy.Resource {
	r := envoy.NewResource(name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: Canary + version}},
	}}})
	r.Version = version
	return r
}

// cluster returns a cluster whose endpoints are in the assignment of its name.
func cluster(name, version string) *envoy.Resource {
	r := envoy.NewResource(name, &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: envoy.ADS()}, AltStatName: version,
	})
	r.Version = version
	return r
}

// listener returns a listener that names what is after dots in its version: secrets, whose names begin with kubernetes,
// and route configurations.
func listener(name, version string) *envoy.Resource {
	l := &listenerv3.Listener{Name: name, StatPrefix: version}
	for i, part := range strings.Split(version, ".") {
		switch {
		case i == 0:
		case strings.HasPrefix(part, "kubernetes:"):
			l.FilterChains = append(l.FilterChains, &listenerv3.FilterChain{TransportSocket: &corev3.TransportSocket{
				Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: envoy.Any(&tlsv3.DownstreamTlsContext{
					CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{
						Name: part, SdsConfig: envoy.ADS(),
					}}},
				})},
			}})
		default:
			l.FilterChains = append(l.FilterChains, routed(part))
		}
	}
	r := envoy.NewResource(name, l)
	r.Version = version
	return r
}

// routed returns a filter chain that names a route configuration.
func routed(route string) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
		Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: envoy.Any(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: envoy.ADS(), RouteConfigName: route}},
		})},
	}}}
}

// route returns a route configuration that routes to the cluster in its version, which is after a dot.
func route(name, version string) *envoy.Resource {
	_, cluster, _ := strings.Cut(version, ".")
	r := envoy.NewResource(name, &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: version, Domains: []string{"*"}, Routes: []*routev3.Route{{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		}}}},
	}}})
	r.Version = version
	return r
}

// Node returns the node of a sidecar.
func Node(pod string) *corev3.Node {
	return &corev3.Node{Id: "sidecar~10.0.0.1~" + pod + "~a.svc.cluster.local", Metadata: &structpb.Struct{
		Fields: map[string]*structpb.Value{"ISTIO_VERSION": structpb.NewStringValue("1.31.0")},
	}}
}

// Names returns n distinct names.
func Names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("n", i)
	}
	return list
}

// Sizes returns the numbers of services for measurements.
func Sizes() []int { return []int{100, 1000, 10000} }

// Clusters returns a Set of n resources of 1 kB each.
func Clusters(n int) *envoy.Set {
	list := make([]*envoy.Resource, n)
	for i := range list {
		list[i] = Cluster(i, "x")
	}
	return envoy.NewSet(list)
}

// Cluster returns one of Clusters with the given content.
func Cluster(i int, content string) *envoy.Resource {
	return envoy.NewResource(fmt.Sprint("outbound|80||", i), wrapperspb.String(strings.Repeat(content, 1000)))
}

// Heap returns the bytes on the heap after garbage collection and cleanups.
func Heap() uint64 {
	for range 4 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
