package telemetry

import (
	"cmp"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	samplersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// tracer sets the tracer of a provider. It returns false if the provider has no traces, or if proxies see no such
// service.
func tracer(p *feature.ExtensionProvider, c feature.Chain, t *hcmv3.HttpConnectionManager_Tracing) bool {
	set := func(name string, config proto.Message, maxTagLength uint32) bool {
		t.Provider = &tracev3.Tracing_Http{Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: envoy.Any(config)}}
		if maxTagLength > 0 {
			t.MaxPathTagLength = envoy.UInt32(maxTagLength)
		}
		return true
	}
	switch k := p.Config.GetProvider().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin:
		if z := k.Zipkin; p.HasPort(z.Port) {
			return set("envoy.tracers.zipkin", zipkin(p, c.Capabilities, z), z.MaxTagLength)
		}
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Datadog:
		if d := k.Datadog; p.HasPort(d.Port) {
			return set("envoy.tracers.datadog", &tracev3.DatadogConfig{
				CollectorCluster: p.Cluster(d.Port), CollectorHostname: p.Service.Host, ServiceName: serviceName(c),
			}, d.MaxTagLength)
		}
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Skywalking:
		if s := k.Skywalking; p.HasPort(s.Port) {
			t.SpawnUpstreamSpan = envoy.Bool(true)
			return set("envoy.tracers.skywalking", skywalking(p, s), 0)
		}
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry:
		if o := k.Opentelemetry; p.HasPort(o.Port) {
			if o.GetDynatraceSampler() != nil { // the sampler decides
				t.RandomSampling = &typev3.Percent{Value: 100}
			}
			return set("envoy.tracers.opentelemetry", openTelemetry(p, c.Capabilities, o, serviceName(c)), o.MaxTagLength)
		}
	}
	return false
}

// serviceName returns the name of a workload in traces.
func serviceName(c feature.Chain) string {
	named := c.Mesh.GetDefaultConfig().GetClusterName()
	if n, ok := named.(*meshv1alpha1.ProxyConfig_TracingServiceName_); ok {
		switch n.TracingServiceName {
		case meshv1alpha1.ProxyConfig_CANONICAL_NAME_ONLY:
			return c.Tags.CanonicalService
		case meshv1alpha1.ProxyConfig_CANONICAL_NAME_AND_NAMESPACE:
			return c.Tags.CanonicalService + "." + c.Tags.Namespace
		}
	}
	return c.Tags.Service
}

const (
	zipkinPath    = "/api/v2/spans"
	zipkinTimeout = 5 * time.Second
	otlpTimeout   = 3 * time.Second
)

func zipkin(p *feature.ExtensionProvider, c node.Capabilities,
	z *meshv1alpha1.MeshConfig_ExtensionProvider_ZipkinTracingProvider) *tracev3.ZipkinConfig {
	path := z.Path
	path = cmp.Or(path, zipkinPath)
	return &tracev3.ZipkinConfig{
		CollectorService: &corev3.HttpService{
			HttpUri:             httpURI("http://"+p.Service.Host+path, p.Cluster(z.Port), z.Timeout, zipkinTimeout),
			RequestHeadersToAdd: headers(c, z.Headers),
		},
		CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON,
		TraceId_128Bit:           !z.Enable_64BitTraceId,
		SharedSpanContext:        envoy.Bool(false),
		TraceContextOption:       tracev3.ZipkinConfig_TraceContextOption(z.TraceContextOption), // both enums have the same numbers
	}
}

func skywalking(p *feature.ExtensionProvider,
	s *meshv1alpha1.MeshConfig_ExtensionProvider_SkyWalkingTracingProvider) *tracev3.SkyWalkingConfig {
	config := &tracev3.SkyWalkingConfig{GrpcService: grpcService(p, s.Port)}
	if s.AccessToken != "" {
		config.ClientConfig = &tracev3.ClientConfig{BackendTokenSpecifier: &tracev3.ClientConfig_BackendToken{BackendToken: s.AccessToken}}
	}
	return config
}

func openTelemetry(
	p *feature.ExtensionProvider, c node.Capabilities, o *meshv1alpha1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider,
	service string,
) *tracev3.OpenTelemetryConfig {
	config := &tracev3.OpenTelemetryConfig{ServiceName: service}
	if h := o.Http; h != nil {
		config.HttpService = httpService(c, p.Service.Host, p.Cluster(o.Port), h.Path, h)
	} else {
		config.GrpcService = grpcService(p, o.Port)
		config.GrpcService.Timeout = o.GetGrpc().GetTimeout()
		for _, h := range o.GetGrpc().GetInitialMetadata() {
			config.GrpcService.InitialMetadata = append(config.GrpcService.InitialMetadata,
				&corev3.HeaderValue{Key: h.Name, Value: feature.Commands(c, h.GetValue())})
		}
	}
	if o.GetResourceDetectors().GetEnvironment() != nil {
		config.ResourceDetectors = append(config.ResourceDetectors,
			extension("envoy.tracers.opentelemetry.resource_detectors.environment", &detectorsv3.EnvironmentResourceDetectorConfig{}))
	}
	if o.GetResourceDetectors().GetDynatrace() != nil {
		config.ResourceDetectors = append(config.ResourceDetectors,
			extension("envoy.tracers.opentelemetry.resource_detectors.dynatrace", &detectorsv3.DynatraceResourceDetectorConfig{}))
	}
	if s := o.GetDynatraceSampler(); s != nil {
		sampler := &samplersv3.DynatraceSamplerConfig{Tenant: s.Tenant, ClusterId: s.ClusterId, RootSpansPerMinute: s.RootSpansPerMinute}
		if h := s.HttpService; h != nil {
			sampler.HttpService = httpService(c, h.Service, names.Cluster(names.Outbound, h.Port, "", h.Service), h.GetHttp().GetPath(), h.Http)
		} else {
			sampler.HttpService = httpService(c, p.Service.Host, p.Cluster(o.Port), "/api/v2/samplingConfiguration", o.Http)
		}
		config.Sampler = extension("envoy.tracers.opentelemetry.samplers.dynatrace", sampler)
	}
	return config
}

func extension(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: envoy.Any(config)}
}

// httpService returns how proxies call a path of a host, in a cluster.
func httpService(c node.Capabilities, host, cluster, path string,
	h *meshv1alpha1.MeshConfig_ExtensionProvider_HttpService) *corev3.HttpService {
	return &corev3.HttpService{HttpUri: httpURI(host+path, cluster, h.GetTimeout(), otlpTimeout),
		RequestHeadersToAdd: headers(c, h.GetHeaders())}
}

func httpURI(uri, cluster string, timeout *durationpb.Duration, otherwise time.Duration) *corev3.HttpUri {
	if timeout == nil {
		timeout = envoy.Duration(otherwise)
	}
	return &corev3.HttpUri{Uri: uri, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster}, Timeout: timeout}
}

// headers returns the headers that have values. Values from the environment of a control plane are not supported.
func headers(c node.Capabilities, list []*meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader) []*corev3.HeaderValueOption {
	var out []*corev3.HeaderValueOption
	for _, h := range list {
		if h.GetEnvName() == "" {
			out = append(out, &corev3.HeaderValueOption{
				Header:       &corev3.HeaderValue{Key: h.Name, Value: feature.Commands(c, h.GetValue())},
				AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			})
		}
	}
	return out
}
