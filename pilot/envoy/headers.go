package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// PreservesCase reports whether HTTP/1 headers keep the case in which they were received.
func PreservesCase(m *mesh.Config) bool {
	return m.GetDefaultConfig().GetProxyHeaders().GetPreserveHttp1HeaderCase().GetValue()
}

// PreserveCase returns the header format that keeps the case in which HTTP/1 headers were received.
func PreserveCase() *corev3.Http1ProtocolOptions_HeaderKeyFormat {
	return &corev3.Http1ProtocolOptions_HeaderKeyFormat{HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{
		StatefulFormatter: &corev3.TypedExtensionConfig{Name: "preserve_case", TypedConfig: Any(&preservecasev3.PreserveCaseFormatterConfig{})},
	}}
}
