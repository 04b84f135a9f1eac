package telemetry

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

func unsupportedMesh(_ *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	return feature.Unsupported("", changed, lacksMesh)
}

// lacksMesh returns what is not done of a field of a mesh configuration, as feature.Unsupported takes it.
func lacksMesh(field string) (message, fix string) {
	switch field {
	case "MeshConfig.accessLogFile", "MeshConfig.accessLogFormat", "MeshConfig.accessLogEncoding", "MeshConfig.enableEnvoyAccessLogService",
		"MeshConfig.disableEnvoyListenerLog", "DefaultProviders.accessLogging":
		message = "no access logs are written"
	case "DefaultProviders.tracing":
		message = "traces are sent to no provider"
	case "ExtensionProvider.zipkin", "ExtensionProvider.lightstep", "ExtensionProvider.datadog", "ExtensionProvider.stackdriver", "ExtensionProvider.opencensus",
		"ExtensionProvider.skywalking", "ExtensionProvider.opentelemetry", "ExtensionProvider.envoyFileAccessLog", "ExtensionProvider.envoyHttpAls",
		"ExtensionProvider.envoyTcpAls", "ExtensionProvider.envoyOtelAls":
		message = "nothing is sent to this provider"
	case "Tracing.customTags", "Tracing.maxPathTagLength", "Tracing.enableIstioTags":
		message = "traces have the usual tags"
	}
	return message, fix
}
