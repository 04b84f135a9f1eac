package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
)

// Options configure a bootstrap.
type Options struct {
	// Node identifies Envoy. node.Format makes one.
	Node *corev3.Node
	// ADS is the address of the control plane: HOST:PORT, or the path of a Unix socket.
	ADS string
	// SDS is the address of the server of its certificates, in the same form. If it is empty, Envoy has no certificates
	// and cannot use mTLS.
	SDS string
	// Admin is the HOST:PORT of the admin API. Port 0 chooses a free port.
	Admin string
	// StateOfTheWorld selects the protocol that sends complete lists of resources. The default is the delta protocol.
	StateOfTheWorld bool
	// Agent has the parts that an agent adds. It may be nil.
	Agent *Agent
}

// programSize is the maximum size of users' regular expressions, as in Istio's bootstraps. The control plane limits
// them, and Envoy's default of 100 would reject most.
const programSize = 32768

const (
	connectTimeout = time.Second
	// Envoy's default waits up to 30 s until it reconnects to the control plane.
	minBackoff, maxBackoff = 100 * time.Millisecond, time.Second
)

// New returns a bootstrap. The error names the option that is wrong.
func New(o Options) (*bootstrapv3.Bootstrap, error) {
	proxy, err := node.Parse(o.Node)
	if err != nil {
		return nil, err // the control plane would refuse it
	}
	xds, err := grpcCluster(names.XDSCluster, o.ADS)
	if err != nil {
		return nil, fmt.Errorf("address of the control plane: %w", err)
	}
	static := []*clusterv3.Cluster{xds}
	if o.SDS != "" {
		sds, err := grpcCluster(names.SDSCluster, o.SDS)
		if err != nil {
			return nil, fmt.Errorf("address of the SDS server: %w", err)
		}
		static = append(static, sds)
	}
	admin, err := parse(o.Admin)
	if err != nil {
		return nil, fmt.Errorf("address of the admin API: %w", err)
	}
	limit, err := connectionLimit()
	if err != nil {
		return nil, err
	}
	api := corev3.ApiConfigSource_DELTA_GRPC
	if o.StateOfTheWorld {
		api = corev3.ApiConfigSource_GRPC
	}
	b := &bootstrapv3.Bootstrap{
		Node:            o.Node,
		Admin:           &bootstrapv3.Admin{Address: admin, IgnoreGlobalConnLimit: true},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: static},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{
				ApiType: api, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
					ClusterName: names.XDSCluster,
					RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
						BaseInterval: durationpb.New(minBackoff), MaxInterval: durationpb.New(maxBackoff),
					}},
				}}}},
			},
			CdsConfig: ads(),
			LdsConfig: ads(),
		},
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "static",
			LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
				"re2.max_program_size.error_level": structpb.NewNumberValue(programSize),
			}}},
		}}},
		OverloadManager: limit,
	}
	if o.Agent != nil {
		if err := o.Agent.extend(b); err != nil {
			return nil, err
		}
	}
	if proxy.SelfDiscovery {
		self, err := selfCluster()
		if err != nil {
			return nil, err
		}
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, self)
		clusterManager(b).LocalClusterName = self.Name
	}
	return b, nil
}

// ads returns the source of resources on the control plane's stream. There is no timeout for the first response.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0), ResourceApiVersion: corev3.ApiVersion_V3,
	}
}

// connectionLimit returns a connection limit that is never reached. Without a limit Envoy logs a warning.
func connectionLimit() (*overloadv3.OverloadManager, error) {
	config, err := anypb.New(&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: math.MaxInt32})
	if err != nil {
		return nil, fmt.Errorf("limit of connections: %w", err)
	}
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name:       "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: config},
	}}}, nil
}

// grpcCluster returns a cluster of one gRPC server.
func grpcCluster(name, text string) (*clusterv3.Cluster, error) {
	address, err := parse(text)
	if err != nil {
		return nil, err
	}
	http2, err := http2Options()
	if err != nil {
		return nil, fmt.Errorf("protocol of cluster %s: %w", name, err)
	}
	c := cluster(name, address)
	c.TypedExtensionProtocolOptions = http2
	socket := address.GetSocketAddress()
	if socket == nil {
		return c, nil
	}
	if _, err := netip.ParseAddr(socket.GetAddress()); err != nil {
		c.ClusterDiscoveryType, c.DnsLookupFamily = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}, clusterv3.Cluster_V4_PREFERRED
	}
	// A host that has gone does not close its connections.
	c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
		KeepaliveTime: wrapperspb.UInt32(30), KeepaliveInterval: wrapperspb.UInt32(10), KeepaliveProbes: wrapperspb.UInt32(3),
	}}
	return c, nil
}

// clusterManager returns the cluster manager of a bootstrap, and adds it if there is none.
func clusterManager(b *bootstrapv3.Bootstrap) *bootstrapv3.ClusterManager {
	if b.ClusterManager == nil {
		b.ClusterManager = &bootstrapv3.ClusterManager{}
	}
	return b.ClusterManager
}

// selfCluster returns the cluster of the proxy's own workload. Envoy calls nothing in it, and compares its zones with
// the zones of other clusters.
func selfCluster() (*clusterv3.Cluster, error) {
	policy, err := anypb.New(&leastrequestv3.LeastRequest{LocalityLbConfig: &commonv3.LocalityLbConfig{
		LocalityConfigSpecifier: &commonv3.LocalityLbConfig_ZoneAwareLbConfig_{
			ZoneAwareLbConfig: &commonv3.LocalityLbConfig_ZoneAwareLbConfig{MinClusterSize: wrapperspb.UInt64(1)},
		},
	}})
	if err != nil {
		return nil, fmt.Errorf("load balancing of cluster %s: %w", names.SelfCluster, err)
	}
	source := ads()
	source.InitialFetchTimeout = nil // Envoy starts without it if the control plane does not serve it
	return &clusterv3.Cluster{
		Name: names.SelfCluster, AltStatName: names.SelfCluster + ";", ConnectTimeout: durationpb.New(connectTimeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: source, ServiceName: names.SelfCluster},
		LoadBalancingPolicy: &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
			TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "envoy.load_balancing_policies.least_request", TypedConfig: policy},
		}}},
	}, nil
}

// cluster returns a cluster of one server.
func cluster(name string, address *corev3.Address) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, ConnectTimeout: durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			}},
		}}},
	}
}

// http2Options returns the options of a cluster that uses HTTP/2.
func http2Options() (map[string]*anypb.Any, error) {
	http2, err := anypb.New(&httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		},
	}})
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2}, err
}

// parse parses HOST:PORT, or the path of a Unix socket.
func parse(text string) (*corev3.Address, error) {
	if path := strings.TrimPrefix(text, "unix:"); strings.Contains(path, "/") && !strings.Contains(path, "://") {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}, nil
	}
	host, number, err := net.SplitHostPort(text)
	port, portErr := strconv.ParseUint(number, 10, 16)
	if err != nil || portErr != nil || host == "" {
		return nil, fmt.Errorf("%q: write HOST:PORT, for example 127.0.0.1:15010, or the path of a Unix socket", text)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}, nil
}

// JSON returns a bootstrap, or any other message, in the form that Envoy reads. The result is deterministic.
func JSON(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("failed to encode the bootstrap: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil { // it also removes the random spaces of protojson
		return nil, fmt.Errorf("failed to encode the bootstrap: %w", err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
