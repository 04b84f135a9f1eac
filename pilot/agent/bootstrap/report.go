package bootstrap

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// Names that objects of the mesh refer to.
const (
	zipkinCluster    = "zipkin"
	datadogCluster   = "datadog_agent"
	metricsCluster   = "envoy_metrics_service"
	accessLogCluster = "envoy_accesslog_service"
)

// report adds the services that Envoy sends its traces, metrics and access logs to, as ProxyConfig says.
func (a *Agent) report(b *bootstrapv3.Bootstrap) error {
	if err := a.trace(b); err != nil {
		return err
	}
	for _, r := range []struct {
		field, cluster string
		service        *meshv1alpha1.RemoteService
	}{{"envoyMetricsService", metricsCluster, a.Proxy.GetEnvoyMetricsService()},
		{"envoyAccessLogService", accessLogCluster, a.Proxy.GetEnvoyAccessLogService()}} {
		if r.service.GetAddress() == "" {
			continue
		}
		c, err := a.remote(r.cluster, r.field, r.service.GetAddress(), r.service.GetTlsSettings(), "h2")
		if err != nil {
			return err
		}
		if c.TypedExtensionProtocolOptions, err = http2Options(); err != nil {
			return fmt.Errorf("%s: %w", r.field, err)
		}
		if settings := r.service.GetTcpKeepalive(); settings != nil {
			c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: keepalive(settings)}
		}
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
	}
	if a.Proxy.GetEnvoyMetricsService().GetAddress() != "" {
		if err := sink(b, "envoy.stat_sinks.metrics_service",
			&metricsv3.MetricsServiceConfig{TransportApiVersion: corev3.ApiVersion_V3, GrpcService: grpcService(metricsCluster)}); err != nil {
			return err
		}
	}
	if text := a.Proxy.GetStatsdUdpAddress(); text != "" {
		address, err := parse(text)
		if err != nil {
			return fmt.Errorf("statsdUdpAddress: %w", err)
		}
		address.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
		statsd := &metricsv3.StatsdSink{StatsdSpecifier: &metricsv3.StatsdSink_Address{Address: address}}
		if err := sink(b, "envoy.stat_sinks.statsd", statsd); err != nil {
			return err
		}
	}
	return nil
}

func sink(b *bootstrapv3.Bootstrap, name string, m proto.Message) error {
	config, err := anypb.New(m)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.StatsSinks = append(b.StatsSinks, &metricsv3.StatsSink{Name: name, ConfigType: &metricsv3.StatsSink_TypedConfig{TypedConfig: config}})
	return nil
}

func keepalive(k *networkingv1alpha3.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *corev3.TcpKeepalive {
	result := &corev3.TcpKeepalive{}
	if k.Probes > 0 {
		result.KeepaliveProbes = wrapperspb.UInt32(k.Probes)
	}
	if k.Time != nil {
		result.KeepaliveTime = wrapperspb.UInt32(uint32(k.Time.AsDuration() / time.Second))
	}
	if k.Interval != nil {
		result.KeepaliveInterval = wrapperspb.UInt32(uint32(k.Interval.AsDuration() / time.Second))
	}
	return result
}

// trace adds the tracer in ProxyConfig, for listeners without one.
func (a *Agent) trace(b *bootstrapv3.Bootstrap) error {
	t := a.Proxy.GetTracing()
	var name, cluster, address string
	var config proto.Message
	switch p := t.GetTracer().(type) {
	case *meshv1alpha1.Tracing_Zipkin_:
		name, cluster, address = "envoy.tracers.zipkin", zipkinCluster, p.Zipkin.GetAddress()
		config = &tracev3.ZipkinConfig{
			CollectorCluster: cluster, CollectorEndpoint: "/api/v2/spans", CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON,
			TraceId_128Bit: true, SharedSpanContext: wrapperspb.Bool(false),
		}
	case *meshv1alpha1.Tracing_Datadog_:
		name, cluster, address = "envoy.tracers.datadog", datadogCluster, p.Datadog.GetAddress()
		config = &tracev3.DatadogConfig{CollectorCluster: cluster, ServiceName: b.Node.GetCluster()}
	}
	if address == "" {
		return nil
	}
	c, err := a.remote(cluster, "tracing", address, t.GetTlsSettings())
	if err != nil {
		return err
	}
	encoded, err := anypb.New(config)
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
	//nolint:staticcheck // the tracer of Envoy itself
	b.Tracing = &tracev3.Tracing{Http: &tracev3.Tracing_Http{Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: encoded}}}
	return nil
}

// Ineffective returns the fields of a ProxyConfig that have no effect on a bootstrap, each with the reason and the
// remedy.
func Ineffective(p *meshv1alpha1.ProxyConfig) []string {
	var list []string
	switch t := p.GetTracing().GetTracer().(type) {
	case nil, *meshv1alpha1.Tracing_Zipkin_, *meshv1alpha1.Tracing_Datadog_:
	default:
		list = append(list, fmt.Sprintf("tracing: %T: Envoy no longer has this tracer; use an extensionProvider and a Telemetry", t))
	}
	if p.GetProxyBootstrapTemplatePath() != "" {
		list = append(list, "proxyBootstrapTemplatePath: the bootstrap is not made from a template; "+
			"override parts of it with ISTIO_BOOTSTRAP_OVERRIDE")
	}
	if p.GetControlPlaneAuthPolicy() == meshv1alpha1.AuthenticationPolicy_NONE {
		list = append(list, "controlPlaneAuthPolicy: NONE: the agent uses TLS; "+
			"for the control plane's port without TLS write discoveryAddress: HOST:15010")
	}
	if n := p.GetStatNameLength(); n != 0 && n != 189 {
		list = append(list, "statNameLength: Envoy no longer limits the length of names")
	}
	if p.GetZipkinAddress() != "" { //nolint:staticcheck // users still set it
		list = append(list, "zipkinAddress: use tracing.zipkin.address")
	}
	return list
}

// remote returns a cluster of one server with a name or an address, with TLS if the settings say so.
func (a *Agent) remote(name, field, at string, settings *networkingv1alpha3.ClientTLSSettings, alpn ...string) (*clusterv3.Cluster, error) {
	address, err := parse(at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	c := cluster(name, address)
	if _, err := netip.ParseAddr(address.GetSocketAddress().GetAddress()); address.GetSocketAddress() != nil && err != nil {
		//nolint:staticcheck // the fields that all supported Envoys read
		c.ClusterDiscoveryType, c.RespectDnsTtl, c.DnsLookupFamily = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}, true,
			clusterv3.Cluster_V4_PREFERRED
		c.DnsRefreshRate = durationpb.New(30 * time.Second) //nolint:staticcheck // as above
		if a.IPv6 {
			c.DnsLookupFamily = clusterv3.Cluster_V6_ONLY
		}
	}
	c.TransportSocket, err = a.tlsSocket(name, settings, alpn)
	if err != nil {
		return nil, fmt.Errorf("%s: tlsSettings: %w", field, err)
	}
	return c, nil
}

// Names of the secrets of the agent.
const (
	ownCertificate = "default" // of the workload
	meshRoots      = "ROOTCA"
)

// tlsSocket returns a TLS transport socket, or nil for mode DISABLE. The agent provides the certificates.
func (a *Agent) tlsSocket(name string, s *networkingv1alpha3.ClientTLSSettings, alpn []string) (*corev3.TransportSocket, error) {
	sni := s.GetSni()
	var certificate, roots string
	switch s.GetMode() {
	case networkingv1alpha3.ClientTLSSettings_DISABLE:
		return nil, nil
	case networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL:
		certificate, roots, alpn = ownCertificate, meshRoots, append([]string{"istio"}, alpn...)
		sni = cmp.Or(sni, name)
	case networkingv1alpha3.ClientTLSSettings_MUTUAL:
		if s.GetClientCertificate() == "" || s.GetPrivateKey() == "" {
			return nil, fmt.Errorf("mode MUTUAL needs clientCertificate and privateKey")
		}
		certificate = "file-cert:" + s.GetClientCertificate() + "~" + s.GetPrivateKey()
	}
	if s.GetCaCertificates() != "" && roots == "" {
		roots = "file-root:" + s.GetCaCertificates()
	}
	common := &tlsv3.CommonTlsContext{AlpnProtocols: alpn}
	a.Compliance.Restrict(common)
	if certificate != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{{Name: certificate, SdsConfig: secrets()}}
	}
	validation := &tlsv3.CertificateValidationContext{}
	for _, name := range s.GetSubjectAltNames() {
		validation.MatchTypedSubjectAltNames = append(validation.MatchTypedSubjectAltNames, alternatives(name)...)
	}
	switch {
	case roots == "" && s.GetInsecureSkipVerify().GetValue():
	case roots == "": // verify the server by the system's roots
		validation.SystemRootCerts = &tlsv3.CertificateValidationContext_SystemRootCerts{}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation}
	default:
		combined := &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: validation, ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: roots, SdsConfig: secrets()},
		}
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: combined}
	}
	config, err := anypb.New(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: sni})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}, nil
}

// secrets returns the source of secrets of the agent. There is no timeout for the first response.
func secrets() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(0),
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*corev3.GrpcService{grpcService(names.SDSCluster)},
		}},
	}
}

func grpcService(name string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: name}}}
}

// alternatives returns matchers for a name of a certificate, as a URI and as a DNS name.
func alternatives(name string) []*tlsv3.SubjectAltNameMatcher {
	var list []*tlsv3.SubjectAltNameMatcher
	for _, kind := range []tlsv3.SubjectAltNameMatcher_SanType{tlsv3.SubjectAltNameMatcher_URI, tlsv3.SubjectAltNameMatcher_DNS} {
		list = append(list, &tlsv3.SubjectAltNameMatcher{SanType: kind,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}})
	}
	return list
}
