package telemetry

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	grpcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	reqwithoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	otlpv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/substitution"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// Names of access loggers.
const (
	fileLogger = "envoy.access_loggers.file"
	httpLogger = "envoy.access_loggers.http_grpc"
	tcpLogger  = "envoy.tcp_grpc_access_log"
	otelLogger = "envoy.access_loggers.open_telemetry"
)

// writer is the part of Envoy that writes an access log.
type writer int

// Values of writer.
const (
	httpWriter     writer = iota // connection manager
	tcpWriter                    // TCP proxy
	listenerWriter               // listener, for connections that match no chain
)

// accessLogs returns the access logs of a writer: those of the selected objects and of default providers, or else those
// of the mesh configuration's own fields.
func accessLogs(p feature.Proxy, d feature.Direction, s feature.Selection, w writer) []*accesslogv3.AccessLog {
	m := p.Mesh
	if w == listenerWriter && m.GetDisableEnvoyListenerLog() {
		return nil
	}
	var out []*accesslogv3.AccessLog
	logs, configured := loggingOf(m, s, sideOf(d))
	for _, l := range logs {
		if name, config := logger(p, l.provider); config != nil {
			out = append(out, accessLog(name, config, w, l.expression))
		}
	}
	if configured {
		return out
	}
	if file := m.GetAccessLogFile(); file != "" {
		out = append(out, accessLog(fileLogger, &filev3.FileAccessLog{Path: file, AccessLogFormat: meshFormat(p)}, w, ""))
	}
	if m.GetEnableEnvoyAccessLogService() {
		out = append(out, bootstrapService(w))
	}
	return out
}

// accessLog returns an access log with the filters of its writer and of an expression.
func accessLog(name string, config proto.Message, w writer, expression string) *accesslogv3.AccessLog {
	var filters []*accesslogv3.AccessLogFilter
	if w == listenerWriter {
		filters = append(filters, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
		}})
	}
	if expression != "" {
		filters = append(filters, &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
			ExtensionFilter: &accesslogv3.ExtensionFilter{
				Name:       "envoy.access_loggers.extension_filters.cel",
				ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: envoy.Any(&celv3.ExpressionFilter{Expression: expression})},
			},
		}})
	}
	l := &accesslogv3.AccessLog{Name: name, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoy.Any(config)}}
	switch len(filters) {
	case 1:
		l.Filter = filters[0]
	case 2:
		l.Filter = &accesslogv3.AccessLogFilter{
			FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{AndFilter: &accesslogv3.AndFilter{Filters: filters}},
		}
	}
	return l
}

// logger returns the access logger of a provider. config is nil if the provider has no access logs, or if proxies see
// no such service.
func logger(x feature.Proxy, p *feature.ExtensionProvider) (name string, config proto.Message) {
	switch c := p.Config.GetProvider().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
		return fileLogger, fileLog(x, p.Name, c.EnvoyFileAccessLog)
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		if a := c.EnvoyHttpAls; p.HasPort(a.Port) {
			return httpLogger, &grpcv3.HttpGrpcAccessLogConfig{
				CommonConfig:                    service(p, a.Port, cmp.Or(a.LogName, "http_envoy_accesslog"), a.FilterStateObjectsToLog, peers),
				AdditionalRequestHeadersToLog:   a.AdditionalRequestHeadersToLog,
				AdditionalResponseHeadersToLog:  a.AdditionalResponseHeadersToLog,
				AdditionalResponseTrailersToLog: a.AdditionalResponseTrailersToLog,
			}
		}
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		if a := c.EnvoyTcpAls; p.HasPort(a.Port) {
			return tcpLogger, &grpcv3.TcpGrpcAccessLogConfig{
				CommonConfig: service(p, a.Port, cmp.Or(a.LogName, "tcp_envoy_accesslog"), a.FilterStateObjectsToLog, peers),
			}
		}
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		if a := c.EnvoyOtelAls; p.HasPort(a.Port) {
			return otelLogger, otelLog(x, p, a)
		}
	}
	return "", nil
}

// Names of the filter state objects that hold a peer's metadata, as newer filters and as all filters name them.
var (
	peers    = []string{"upstream_peer", "downstream_peer"}
	allPeers = append(slices.Clip(peers), "wasm.upstream_peer", "wasm.upstream_peer_id", "wasm.downstream_peer", "wasm.downstream_peer_id")
)

// service returns how access logs are sent to a provider's service. If it names no filter state objects, those of peers
// are logged.
func service(p *feature.ExtensionProvider, port uint32, logName string, objects, otherwise []string) *grpcv3.CommonGrpcAccessLogConfig {
	if len(objects) == 0 {
		objects = otherwise
	}
	return &grpcv3.CommonGrpcAccessLogConfig{LogName: logName, GrpcService: grpcService(p, port),
		TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: objects}
}

// grpcService returns how proxies call a provider's service over gRPC.
func grpcService(p *feature.ExtensionProvider, port uint32) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: p.Cluster(port), Authority: p.Service.Host},
	}}
}

// bootstrapService returns the access log that is sent to the service in the proxies' bootstrap.
func bootstrapService(w writer) *accesslogv3.AccessLog {
	common := &grpcv3.CommonGrpcAccessLogConfig{
		GrpcService: &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "envoy_accesslog_service"},
		}},
		TransportApiVersion: corev3.ApiVersion_V3, FilterStateObjectsToLog: allPeers,
	}
	switch w {
	case httpWriter:
		common.LogName = "http_envoy_accesslog"
		return accessLog(httpLogger, &grpcv3.HttpGrpcAccessLogConfig{CommonConfig: common}, w, "")
	case tcpWriter:
		common.LogName = "tcp_envoy_accesslog"
	case listenerWriter:
		common.LogName = "listener_envoy_accesslog"
	}
	return accessLog(tcpLogger, &grpcv3.TcpGrpcAccessLogConfig{CommonConfig: common}, w, "")
}

// fileLog returns the access log of a provider that writes files. The provider that every mesh has writes in the format
// of the mesh configuration.
func fileLog(p feature.Proxy, name string, f *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider) *filev3.FileAccessLog {
	l := &filev3.FileAccessLog{Path: cmp.Or(f.Path, "/dev/stdout")}
	switch format := f.GetLogFormat().GetLogFormat().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels:
		labels := format.Labels
		if len(labels.GetFields()) == 0 || !knows(p, text(structpb.NewStructValue(labels))) {
			labels = mesh.LogLabels()
		}
		l.AccessLogFormat = jsonFormat(labels, f.OmitEmptyValues)
	case *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Text:
		l.AccessLogFormat = textFormat(orDefault(p, format.Text), f.OmitEmptyValues)
	default:
		if name == mesh.FileLogProvider {
			l.AccessLogFormat = meshFormat(p)
		} else {
			l.AccessLogFormat = textFormat(mesh.LogText, f.OmitEmptyValues)
		}
	}
	return l
}

// meshFormat returns the format in the mesh configuration's own fields.
func meshFormat(p feature.Proxy) *filev3.FileAccessLog_LogFormat {
	format := p.Mesh.GetAccessLogFormat()
	if p.Mesh.GetAccessLogEncoding() == meshv1alpha1.MeshConfig_JSON {
		labels, err := labelsOf(format)
		if err != nil || !knows(p, text(structpb.NewStructValue(labels))) {
			labels = mesh.LogLabels()
		}
		return jsonFormat(labels, false)
	}
	return textFormat(orDefault(p, format), false)
}

// knows reports whether a proxy has all commands of a text.
func knows(p feature.Proxy, text string) bool {
	return p.Capabilities.Has(node.RecentCommands) || substitution.Recent(text) == ""
}

// orDefault returns the format of lines, or the default if it is empty or the proxy does not have its commands.
func orDefault(p feature.Proxy, format string) string {
	if format == "" || !knows(p, format) {
		return mesh.LogText
	}
	return format
}

// labelsOf parses the format of lines in JSON. It returns an error if the text is no JSON object.
func labelsOf(format string) (*structpb.Struct, error) {
	labels := &structpb.Struct{}
	return labels, json.Unmarshal([]byte(format), labels)
}

// textFormat returns a format of lines that end with a newline.
func textFormat(text string, omitEmpty bool) *filev3.FileAccessLog_LogFormat {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return &filev3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}},
		},
		OmitEmptyValues: omitEmpty, Formatters: formatters(text),
	}}
}

// jsonFormat returns a format of JSON objects with sorted keys, one a line.
func jsonFormat(labels *structpb.Struct, omitEmpty bool) *filev3.FileAccessLog_LogFormat {
	return &filev3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: labels}, JsonFormatOptions: &corev3.JsonFormatOptions{},
		OmitEmptyValues: omitEmpty, Formatters: formatters(text(structpb.NewStructValue(labels))),
	}}
}

// text returns all texts in a value.
func text(v *structpb.Value) string {
	var b strings.Builder
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return k.StringValue
	case *structpb.Value_StructValue:
		for _, key := range slices.Sorted(maps.Keys(k.StructValue.GetFields())) {
			b.WriteString(text(k.StructValue.Fields[key]) + "\n")
		}
	case *structpb.Value_ListValue:
		for _, e := range k.ListValue.GetValues() {
			b.WriteString(text(e) + "\n")
		}
	}
	return b.String()
}

// formatters returns the extensions that a format needs.
func formatters(format string) []*corev3.TypedExtensionConfig {
	if !strings.Contains(format, "%REQ_WITHOUT_QUERY") {
		return nil
	}
	return []*corev3.TypedExtensionConfig{{Name: "envoy.formatter.req_without_query",
		TypedConfig: envoy.Any(&reqwithoutqueryv3.ReqWithoutQuery{})}}
}

// otelLog returns the access log of a provider of OpenTelemetry records.
func otelLog(x feature.Proxy, p *feature.ExtensionProvider,
	a *meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider) *otelv3.OpenTelemetryAccessLogConfig {
	body := orDefault(x, a.GetLogFormat().GetText())
	labels := a.GetLogFormat().GetLabels()
	if !knows(x, text(structpb.NewStructValue(labels))) {
		labels = nil
	}
	l := &otelv3.OpenTelemetryAccessLogConfig{
		//nolint:staticcheck // the field that all supported Envoys read
		CommonConfig: service(p, a.Port, cmp.Or(a.LogName, "otel_envoy_accesslog"), nil, allPeers), DisableBuiltinLabels: true,
		Body:       &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: body}},
		Formatters: formatters(body + "\n" + text(structpb.NewStructValue(labels))),
	}
	if len(labels.GetFields()) > 0 {
		l.Attributes = attributes(labels)
	}
	return l
}

// attributes returns fields as OpenTelemetry attributes, sorted.
func attributes(s *structpb.Struct) *otlpv1.KeyValueList {
	list := &otlpv1.KeyValueList{}
	for _, k := range slices.Sorted(maps.Keys(s.GetFields())) {
		list.Values = append(list.Values, &otlpv1.KeyValue{Key: k, Value: attribute(s.Fields[k])})
	}
	return list
}

// attribute returns a value as an OpenTelemetry value. Scalars other than text are written as JSON text, because
// proxies accept no others.
func attribute(v *structpb.Value) *otlpv1.AnyValue {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: k.StringValue}}
	case *structpb.Value_StructValue:
		return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_KvlistValue{KvlistValue: attributes(k.StructValue)}}
	case *structpb.Value_ListValue:
		list := &otlpv1.ArrayValue{}
		for _, e := range k.ListValue.GetValues() {
			list.Values = append(list.Values, attribute(e))
		}
		return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_ArrayValue{ArrayValue: list}}
	}
	b, _ := v.MarshalJSON() // scalars can be encoded
	return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: string(b)}}
}
