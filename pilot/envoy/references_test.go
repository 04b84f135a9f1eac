package envoy

import (
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestReferences: a resource refers to the names that a client subscribes to on the same stream because of it, wherever
// they are in it.
func TestReferences(t *testing.T) {
	socket := func(secrets ...*tlsv3.SdsSecretConfig) *corev3.TransportSocket {
		return &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: Any(&tlsv3.UpstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{
				TlsCertificateSdsSecretConfigs: secrets[:1],
				ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
					CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
						ValidationContextSdsSecretConfig: secrets[1],
					},
				},
			},
		})}}
	}
	discovery := &corev3.ExtensionConfigSource{ConfigSource: ADS()}
	for name, x := range map[string]struct {
		message proto.Message
		want    []Reference
	}{
		"a cluster of the name of its assignment": {
			&clusterv3.Cluster{
				Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
				EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ADS()},
			}, []Reference{{EndpointType, "a"}},
		},
		"a cluster with secrets of the stream and of the agent": {
			&clusterv3.Cluster{
				Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
				EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ADS(), ServiceName: "b"},
				TransportSocketMatches: []*clusterv3.Cluster_TransportSocketMatch{
					{Name: "x", TransportSocket: socket(ServedSecret("kubernetes://c"), ServedSecret("kubernetes://c-cacert"))},
					{Name: "y", TransportSocket: socket(AgentSecret("default"), AgentSecret("ROOTCA"))},
				},
			}, []Reference{{EndpointType, "b"}, {SecretType, "kubernetes://c"}, {SecretType, "kubernetes://c-cacert"}},
		},
		"a cluster whose endpoints are in it": {&clusterv3.Cluster{Name: "a"}, nil},
		"a listener": {
			&listenerv3.Listener{Name: "l", FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
				{Name: "network", ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: discovery}},
				{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: Any(&hcmv3.HttpConnectionManager{
					HttpFilters:    []*hcmv3.HttpFilter{{Name: "wasm", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: discovery}}},
					RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ADS(), RouteConfigName: "80"}},
				})}},
			}}}}, []Reference{{ExtensionType, "network"}, {ExtensionType, "wasm"}, {RouteType, "80"}},
		},
		"an extension with a secret": {
			&corev3.TypedExtensionConfig{Name: "x", TypedConfig: Any(&tlsv3.SdsSecretConfig{Name: "s", SdsConfig: ADS()})},
			[]Reference{{SecretType, "s"}},
		},
		"an extension that this program does not know": {
			&corev3.TypedExtensionConfig{Name: "x", TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/made.Up", Value: []byte{8, 1}}}, nil,
		},
		"a route configuration": {
			&routev3.RouteConfiguration{Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v", Routes: []*routev3.Route{
				{Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "b"}}}},
				{Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{
					WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "a"}, {Name: "b"}}},
				}}}},
			}}}}, []Reference{{ClusterType, "a"}, {ClusterType, "b"}},
		},
		"a secret": {&tlsv3.Secret{Name: "s"}, nil},
	} {
		r := NewResource("x", x.message)
		for range 2 { // decoded, and remembered
			if got := r.References(); !slices.Equal(got, x.want) {
				t.Errorf("%s: %v, want %v", name, got, x.want)
			}
		}
	}
	if list := RawResource("x", ClusterType, []byte{0xff}).References(); list != nil {
		t.Errorf("bytes that are no cluster refer to %v", list)
	}
}
