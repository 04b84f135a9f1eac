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

// report adds where Envoy sends its traces, metrics and access logs, as ProxyConfig says.
func (a *Agent) report(b *bootstrapv3.Bootstrap) error {
	if err := a.trace(b); err != nil {
		return err
	}
	for _, r := range []struct {
		field, cluster string
		to             *meshv1alpha1.RemoteService
	}{{"envoyMetricsService", metricsCluster, a.Proxy.GetEnvoyMetricsService()}, {"envoyAccessLogService", accessLogCluster, a.Proxy.GetEnvoyAccessLogService()}} {
		if r.to.GetAddress() == "" {
			continue
		}
		c, err := a.remote(r.cluster, r.field, r.to.GetAddress(), r.to.GetTlsSettings(), "h2")
		if err != nil {
			return err
		}
		if c.TypedExtensionProtocolOptions, err = http2Options(); err != nil {
			return fmt.Errorf("%s: %w", r.field, err)
		}
		if keep := r.to.GetTcpKeepalive(); keep != nil {
			c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: keepalive(keep)}
		}
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
	}
	if a.Proxy.GetEnvoyMetricsService().GetAddress() != "" {
		if err := sink(b, "envoy.stat_sinks.metrics_service", &metricsv3.MetricsServiceConfig{TransportApiVersion: corev3.ApiVersion_V3, GrpcService: grpcService(metricsCluster)}); err != nil {
			return err
		}
	}
	if text := a.Proxy.GetStatsdUdpAddress(); text != "" {
		at, err := parse(text)
		if err != nil {
			return fmt.Errorf("statsdUdpAddress: %w", err)
		}
		at.GetSocketAddress().Protocol = corev3.SocketAddress_UDP
		if err := sink(b, "envoy.stat_sinks.statsd", &metricsv3.StatsdSink{StatsdSpecifier: &metricsv3.StatsdSink_Address{Address: at}}); err != nil {
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
	made := &corev3.TcpKeepalive{}
	if k.Probes > 0 {
		made.KeepaliveProbes = wrapperspb.UInt32(k.Probes)
	}
	if k.Time != nil {
		made.KeepaliveTime = wrapperspb.UInt32(uint32(k.Time.AsDuration() / time.Second))
	}
	if k.Interval != nil {
		made.KeepaliveInterval = wrapperspb.UInt32(uint32(k.Interval.AsDuration() / time.Second))
	}
	return made
}

// trace adds the tracer that ProxyConfig names, for listeners that name none.
func (a *Agent) trace(b *bootstrapv3.Bootstrap) error {
	t := a.Proxy.GetTracing()
	var name, to, at string
	var config proto.Message
	switch p := t.GetTracer().(type) {
	case *meshv1alpha1.Tracing_Zipkin_:
		name, to, at = "envoy.tracers.zipkin", zipkinCluster, p.Zipkin.GetAddress()
		config = &tracev3.ZipkinConfig{
			CollectorCluster: to, CollectorEndpoint: "/api/v2/spans", CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON, TraceId_128Bit: true, SharedSpanContext: wrapperspb.Bool(false),
		}
	case *meshv1alpha1.Tracing_Datadog_:
		name, to, at = "envoy.tracers.datadog", datadogCluster, p.Datadog.GetAddress()
		config = &tracev3.DatadogConfig{CollectorCluster: to, ServiceName: b.Node.GetCluster()}
	}
	if at == "" {
		return nil
	}
	c, err := a.remote(to, "tracing", at, t.GetTlsSettings())
	if err != nil {
		return err
	}
	encoded, err := anypb.New(config)
	if err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
	b.Tracing = &tracev3.Tracing{Http: &tracev3.Tracing_Http{Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: encoded}}}
	return nil
}

// Ineffective returns the fields of a ProxyConfig that do nothing in a bootstrap, each with the reason.
func Ineffective(p *meshv1alpha1.ProxyConfig) []string {
	var list []string
	switch t := p.GetTracing().GetTracer().(type) {
	case nil, *meshv1alpha1.Tracing_Zipkin_, *meshv1alpha1.Tracing_Datadog_:
	default:
		list = append(list, fmt.Sprintf("tracing: %T: Envoy has no such tracer any more; write an extensionProvider and a Telemetry", t))
	}
	if p.GetProxyBootstrapTemplatePath() != "" {
		list = append(list, "proxyBootstrapTemplatePath: the bootstrap is not made from a template; override parts of it by ISTIO_BOOTSTRAP_OVERRIDE")
	}
	if p.GetControlPlaneAuthPolicy() == meshv1alpha1.AuthenticationPolicy_NONE {
		list = append(list, "controlPlaneAuthPolicy: NONE: the control plane is asked by TLS; for its port without TLS write discoveryAddress: HOST:15010")
	}
	if n := p.GetStatNameLength(); n != 0 && n != 189 {
		list = append(list, "statNameLength: Envoy bounds no names any more")
	}
	if p.GetZipkinAddress() != "" {
		list = append(list, "zipkinAddress: write tracing.zipkin.address")
	}
	return list
}

// remote is a cluster of one server by its name or address, over TLS where settings say so.
func (a *Agent) remote(name, field, at string, settings *networkingv1alpha3.ClientTLSSettings, alpn ...string) (*clusterv3.Cluster, error) {
	address, err := parse(at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	c := cluster(name, address)
	if _, err := netip.ParseAddr(address.GetSocketAddress().GetAddress()); address.GetSocketAddress() != nil && err != nil {
		c.ClusterDiscoveryType, c.RespectDnsTtl, c.DnsLookupFamily = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}, true, clusterv3.Cluster_V4_PREFERRED
		c.DnsRefreshRate = durationpb.New(30 * time.Second)
		if a.IPv6 {
			c.DnsLookupFamily = clusterv3.Cluster_V6_ONLY
		}
	}
	c.TransportSocket, err = tlsSocket(name, settings, alpn)
	if err != nil {
		return nil, fmt.Errorf("%s: tlsSettings: %w", field, err)
	}
	return c, nil
}

// tlsSocket connects by TLS as settings say. The agent has the certificates.
func tlsSocket(name string, s *networkingv1alpha3.ClientTLSSettings, alpn []string) (*corev3.TransportSocket, error) {
	sni := s.GetSni()
	var certificate, roots string
	switch s.GetMode() {
	case networkingv1alpha3.ClientTLSSettings_DISABLE:
		return nil, nil
	case networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL:
		certificate, roots, alpn = "default", "ROOTCA", append([]string{"istio"}, alpn...)
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
	if certificate != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{{Name: certificate, SdsConfig: secrets()}}
	}
	check := &tlsv3.CertificateValidationContext{}
	for _, name := range s.GetSubjectAltNames() {
		check.MatchTypedSubjectAltNames = append(check.MatchTypedSubjectAltNames, alternatives(name)...)
	}
	switch {
	case roots == "" && s.GetInsecureSkipVerify().GetValue():
	case roots == "": // those of the system, rather than nobody's
		check.SystemRootCerts = &tlsv3.CertificateValidationContext_SystemRootCerts{}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: check}
	default:
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: check, ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: roots, SdsConfig: secrets()},
		}}
	}
	config, err := anypb.New(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: sni})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}, nil
}

// secrets are those that the agent serves; they may take any time to come.
func secrets() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(0),
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true, GrpcServices: []*corev3.GrpcService{grpcService(names.SDSCluster)},
		}},
	}
}

func grpcService(name string) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: name}}}
}

// alternatives match a name of a certificate, whichever kind of name it is.
func alternatives(name string) []*tlsv3.SubjectAltNameMatcher {
	var list []*tlsv3.SubjectAltNameMatcher
	for _, kind := range []tlsv3.SubjectAltNameMatcher_SanType{tlsv3.SubjectAltNameMatcher_URI, tlsv3.SubjectAltNameMatcher_DNS} {
		list = append(list, &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}})
	}
	return list
}
