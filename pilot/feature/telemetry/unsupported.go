package telemetry

import (
	"strconv"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
)

// unsupported returns findings about fields of a Telemetry without effect.
func unsupported(o *kinds.Object) []diag.Diagnostic {
	var found []diag.Diagnostic
	add := func(field, message, fix string) {
		found = append(found, diag.Diagnostic{Severity: diag.Warning, Code: "NoEffect", Field: field, Message: message, Fix: fix})
	}
	if feature.TargetsServices(o) {
		field := "spec.targetRefs"
		if spec(o).GetTargetRef() != nil {
			field = "spec.targetRef"
		}
		add(field, "targets that are services apply to waypoints only, which are not supported", "use selector")
	}
	for i, e := range spec(o).GetAccessLogging() {
		if e.GetFilter().GetExpression() != "" && len(e.Providers) == 0 {
			add("spec.accessLogging["+strconv.Itoa(i)+"].filter",
				"a filter applies to the providers of the same entry, and there are none: everything is logged", "name the providers")
		}
	}
	return found
}

func unsupportedMesh(c *mesh.Config, changed *meshv1alpha1.MeshConfig) []diag.Diagnostic {
	found := feature.Unsupported("", changed, lacksMesh)
	if format := changed.GetAccessLogFormat(); format != "" && c.GetAccessLogEncoding() == meshv1alpha1.MeshConfig_JSON {
		if _, err := labelsOf(format); err != nil {
			found = append(found, diag.Diagnostic{
				Severity: diag.Warning, Code: "NoEffect", Field: "accessLogFormat",
				Message: "it is not a JSON object: lines have the default fields", Fix: "write a JSON object, or accessLogEncoding: TEXT",
			})
		}
	}
	return found
}

// lacksMesh returns the message and the remedy for an unsupported field of a mesh configuration, see
// feature.Unsupported.
func lacksMesh(field string) (message, fix string) {
	switch field {
	case "ExtensionProvider.lightstep", "ExtensionProvider.opencensus":
		message, fix = "proxies have no such tracer any more", "use opentelemetry"
	case "ExtensionProvider.stackdriver":
		message, fix = "proxies have no such tracer, logs and metrics any more", "use opentelemetry"
	case "HttpHeader.envName":
		message, fix = "the server's environment is not read for proxies, and the header is left out", "use value"
	case "OpenTelemetryTracingProvider.serviceAttributeEnrichment":
		message, fix = "traces have the service's canonical name", "set OTEL_RESOURCE_ATTRIBUTES, and resourceDetectors.environment"
	}
	return message, fix
}
