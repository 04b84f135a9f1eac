package bootstrap

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	internalv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	brotliv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/brotli/compressor/v3"
	gzipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/compressor/v3"
	zstdv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/zstd/compressor/v3"
	compressorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Agent configures the parts of a bootstrap that an agent adds.
type Agent struct {
	// Proxy is the ProxyConfig with defaults. It says what Envoy records, and where it sends that.
	Proxy *meshv1alpha1.ProxyConfig
	// Annotations are the annotations of the pod. Some of sidecar.istio.io have precedence over Proxy.
	Annotations map[string]string
	// Status is the port of the agent's readiness check on this host.
	Status uint16
	// ReadyPort and MetricsPort are Envoy's ports for /healthz/ready and /stats/prometheus.
	ReadyPort, MetricsPort uint16
	// SecureMetricsPort is Envoy's port for /stats/prometheus by mutual TLS, and SecureMergedPort its port for the
	// merged metrics of the agent. Zero is none.
	SecureMetricsPort, SecureMergedPort uint16
	// LocalMetrics limits MetricsPort to this pod.
	LocalMetrics bool
	// IPv6 means that the pod has no IPv4 address.
	IPv6 bool
	// JSONLog makes Envoy log in JSON.
	JSONLog bool
	// OutlierLog is the file for Envoy's outlier detection events. It may be empty.
	OutlierLog string
	// CountConnections enables the statistic of open connections, which the agent reads while Envoy drains.
	CountConnections bool
	// Compliance limits TLS.
	Compliance compliance.Policy
}

const (
	agentCluster = "agent"
	adminCluster = "prometheus_stats"
	localTimeout = 250 * time.Millisecond
)

// extend adds the agent's parts to a bootstrap. The error names the wrong field or annotation.
func (a *Agent) extend(b *bootstrapv3.Bootstrap) error {
	local, all := "127.0.0.1", "0.0.0.0"
	if a.IPv6 {
		local, all = "::1", "::"
	}
	stats, err := a.stats(b.Node)
	if err != nil {
		return err
	}
	b.StatsConfig = stats
	if err := a.statsIntervals(b); err != nil {
		return err
	}
	b.DeferredStatOptions = &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true}
	b.ApplicationLogConfig = a.log()
	if b.Admin.AccessLog, err = silent(); err != nil {
		return err
	}
	b.Admin.ProfilePath = "/var/lib/istio/data/envoy.prof"
	b.LayeredRuntime = a.runtime()
	if b.BootstrapExtensions, err = extensions(); err != nil {
		return err
	}
	for _, c := range b.StaticResources.Clusters {
		c.CircuitBreakers = unlimited()
	}
	for _, c := range []struct {
		name string
		port uint16
	}{{adminCluster, uint16(b.Admin.Address.GetSocketAddress().GetPortValue())}, {agentCluster, a.Status}} {
		target := cluster(c.name, socket(local, c.port))
		target.ConnectTimeout = durationpb.New(localTimeout)
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, target)
	}
	metrics := all
	if a.LocalMetrics {
		metrics = local
	}
	compressed := (a.Proxy.GetStatsCompression().GetValue() || a.Proxy.GetStatsCompression() == nil) &&
		a.Annotations[names.AnnotationStatsCompression] != "false"
	const metricsPath = "/stats/prometheus"
	for _, l := range []endpoint{
		{host: metrics, port: a.MetricsPort, stat: "stats", paths: []string{metricsPath}, cluster: adminCluster, compressed: compressed},
		{host: all, port: a.ReadyPort, stat: "agent", paths: []string{"/healthz/ready"}, cluster: agentCluster},
		{
			host: all, port: a.SecureMetricsPort, stat: "secure_stats", paths: []string{metricsPath}, cluster: adminCluster, compressed: compressed,
			secure: true,
		},
		{
			host: all, port: a.SecureMergedPort, stat: "secure_merged_stats", paths: []string{metricsPath, "/metrics"}, cluster: agentCluster,
			secure: true, // the agent compresses
		},
	} {
		if l.port == 0 {
			continue
		}
		added, err := a.listener(l)
		if err != nil {
			return err
		}
		b.StaticResources.Listeners = append(b.StaticResources.Listeners, added)
	}
	if a.OutlierLog != "" {
		clusterManager(b).OutlierDetection = &bootstrapv3.ClusterManager_OutlierDetection{EventLogPath: a.OutlierLog}
	}
	// Most clusters of a gateway are never called.
	if b.Node.GetId() != "" && len(b.Node.Id) > 6 && b.Node.Id[:7] == "router~" {
		clusterManager(b).EnableDeferredClusterCreation = true
	}
	if err := a.report(b); err != nil {
		return err
	}
	for _, c := range b.StaticResources.Clusters {
		c.AltStatName = c.Name + ";" // the tag for the cluster's name ends at the semicolon
	}
	return nil
}

// silent returns an access log to /dev/null.
func silent() ([]*accesslogv3.AccessLog, error) {
	config, err := anypb.New(&filelogv3.FileAccessLog{Path: "/dev/null"})
	if err != nil {
		return nil, fmt.Errorf("access log of the admin API: %w", err)
	}
	return []*accesslogv3.AccessLog{{Name: "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: config}}}, nil
}

// extensions returns the extension for internal listeners, which other listeners connect to.
func extensions() ([]*corev3.TypedExtensionConfig, error) {
	config, err := anypb.New(&internalv3.InternalListener{BufferSizeKb: wrapperspb.UInt32(64)})
	if err != nil {
		return nil, fmt.Errorf("internal listeners: %w", err)
	}
	return []*corev3.TypedExtensionConfig{{Name: "envoy.bootstrap.internal_listener", TypedConfig: config}}, nil
}

// unlimited returns circuit breakers with very high limits, because the streams of all resources share one
// connection.
func unlimited() *clusterv3.CircuitBreakers {
	const limit = 100000
	var list []*clusterv3.CircuitBreakers_Thresholds
	for _, p := range []corev3.RoutingPriority{corev3.RoutingPriority_DEFAULT, corev3.RoutingPriority_HIGH} {
		list = append(list, &clusterv3.CircuitBreakers_Thresholds{
			Priority: p, MaxConnections: wrapperspb.UInt32(limit), MaxPendingRequests: wrapperspb.UInt32(limit),
			MaxRequests: wrapperspb.UInt32(limit),
		})
	}
	return &clusterv3.CircuitBreakers{Thresholds: list}
}

// log returns the format of Envoy's log. The agent's log has the same.
func (a *Agent) log() *bootstrapv3.Bootstrap_ApplicationLogConfig {
	const timestamp = "%Y-%m-%dT%T.%fZ"
	format := &bootstrapv3.Bootstrap_ApplicationLogConfig_LogFormat{
		LogFormat: &bootstrapv3.Bootstrap_ApplicationLogConfig_LogFormat_TextFormat{
			TextFormat: timestamp + "\t%l\tenvoy %n %g:%#\t%v\tthread=%t",
		},
	}
	if a.JSONLog {
		text := structpb.NewStringValue
		fields := map[string]*structpb.Value{
			"time": text(timestamp), "level": text("%l"), "scope": text("envoy %n"), "msg": text("%j"), "caller": text("%g:%#"),
			"thread": text("%t"),
		}
		format.LogFormat = &bootstrapv3.Bootstrap_ApplicationLogConfig_LogFormat_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}}
	}
	return &bootstrapv3.Bootstrap_ApplicationLogConfig{LogFormat: format}
}

// runtime returns the runtime layers, with defaults below the values in ProxyConfig. The texts true and false become
// booleans.
func (a *Agent) runtime() *bootstrapv3.LayeredRuntime {
	fields := map[string]*structpb.Value{
		"re2.max_program_size.error_level": structpb.NewNumberValue(programSize),
		// The heap limit refers to memory in use, not to memory that the allocator retains.
		"envoy.reloadable_features.fixed_heap_use_allocated": structpb.NewBoolValue(true),
		// A fragment in a path is ignored for routing.
		"envoy.reloadable_features.http_reject_path_with_fragment": structpb.NewBoolValue(false),
	}
	if a.Compliance == compliance.FIPS1402 {
		// It limits Envoy's second gRPC client, the library of Google, to TLS 1.2.
		fields["envoy.reloadable_features.google_grpc_disable_tls_13"] = structpb.NewBoolValue(true)
	}
	for key, text := range a.Proxy.GetRuntimeValues() {
		fields[key] = structpb.NewStringValue(text)
		if v, err := strconv.ParseBool(text); err == nil && (text == "true" || text == "false") {
			fields[key] = structpb.NewBoolValue(v)
		}
	}
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
		{Name: "global config", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: fields}}},
		{Name: "admin", LayerSpecifier: &bootstrapv3.RuntimeLayer_AdminLayer_{AdminLayer: &bootstrapv3.RuntimeLayer_AdminLayer{}}},
	}}
}

func socket(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// endpoint is a port at which Envoy forwards the requests of some paths to a cluster.
type endpoint struct {
	host       string
	port       uint16
	stat       string
	paths      []string // prefixes
	cluster    string
	compressed bool
	secure     bool // clients must show a certificate of the mesh
}

// listener returns the listener of an endpoint. It is exempt from Envoy's overload limits.
func (a *Agent) listener(e endpoint) (*listenerv3.Listener, error) {
	filters, err := httpFilters(e.compressed)
	if err != nil {
		return nil, err
	}
	var routes []*routev3.Route
	for _, path := range e.paths {
		to := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: e.cluster}}
		if e.secure {
			// The agent refuses other names of this host, because browsers could send them. No browser has a certificate.
			to.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: "localhost"}
		}
		routes = append(routes, &routev3.Route{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: path}},
			Action: &routev3.Route_Route{Route: to},
		})
	}
	manager, err := anypb.New(&managerv3.HttpConnectionManager{
		StatPrefix: e.stat, HttpFilters: filters,
		RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			VirtualHosts: []*routev3.VirtualHost{{Name: "backend", Domains: []string{"*"}, Routes: routes}},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("listener of %s: %w", e.stat, err)
	}
	chain := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
		Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager},
	}}}
	if e.secure {
		if chain.TransportSocket, err = a.mutualTLS(); err != nil {
			return nil, fmt.Errorf("listener of %s: %w", e.stat, err)
		}
	}
	return &listenerv3.Listener{
		Name: net.JoinHostPort(e.host, strconv.Itoa(int(e.port))), Address: socket(e.host, e.port), IgnoreGlobalConnLimit: true,
		BypassOverloadManager: true, FilterChains: []*listenerv3.FilterChain{chain},
	}, nil
}

// mutualTLS returns the transport socket of a port that demands a certificate of the mesh.
func (a *Agent) mutualTLS() (*corev3.TransportSocket, error) {
	source := secrets()
	// Envoy starts when its static listeners are ready. After its default timeout these take no connection until the
	// certificate comes, and do not delay traffic.
	source.InitialFetchTimeout = nil
	common := &tlsv3.CommonTlsContext{
		TlsParams:                      &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: ownCertificate, SdsConfig: source}},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{},
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: meshRoots, SdsConfig: source},
			},
		},
	}
	a.Compliance.Restrict(common)
	config, err := anypb.New(&tlsv3.DownstreamTlsContext{CommonTlsContext: common, RequireClientCertificate: wrapperspb.Bool(true)})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}, nil
}

// httpFilters returns the HTTP filters of such a listener. Metrics compress well, so all compressions are offered.
func httpFilters(compressed bool) ([]*managerv3.HttpFilter, error) {
	var list []*managerv3.HttpFilter
	add := func(name string, m proto.Message) error {
		config, err := anypb.New(m)
		if err != nil {
			return fmt.Errorf("filter %s: %w", name, err)
		}
		list = append(list, &managerv3.HttpFilter{Name: name, ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: config}})
		return nil
	}
	libraries := map[string]proto.Message{"brotli": &brotliv3.Brotli{}, "zstd": &zstdv3.Zstd{}, "gzip": &gzipv3.Gzip{}}
	for _, name := range []string{"brotli", "zstd", "gzip"} {
		if !compressed {
			break
		}
		library, err := anypb.New(libraries[name])
		if err != nil {
			return nil, fmt.Errorf("compression by %s: %w", name, err)
		}
		if err := add("envoy.filters.http.compressor."+name, &compressorv3.Compressor{
			CompressorLibrary: &corev3.TypedExtensionConfig{Name: "stats_" + name, TypedConfig: library},
			ResponseDirectionConfig: &compressorv3.Compressor_ResponseDirectionConfig{CommonConfig: &compressorv3.Compressor_CommonDirectionConfig{
				//nolint:staticcheck // the field that istiod sets
				ContentType: []string{"text/plain", "application/vnd.google.protobuf", "application/openmetrics-text",
					"application/openmetrics-protobuf"},
			}},
		}); err != nil {
			return nil, err
		}
	}
	err := add("envoy.filters.http.router", &routerv3.Router{})
	return list, err
}

// sorted returns the keys of m in order.
func sorted[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), cmp.Compare[string])
}
