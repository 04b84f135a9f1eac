package injector

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// otelResourceAttributes returns the resource attributes of a pod's service, by OpenTelemetry's conventions for
// Kubernetes, in the form of OTEL_RESOURCE_ATTRIBUTES. It returns "" if no provider of the mesh uses them. The name of
// the service is not included, because proxies know it.
func otelResourceAttributes(m *meshv1alpha1.MeshConfig, annotations, labels map[string]string,
	namespace string, containers []corev1.Container) string {
	wanted := false
	for _, p := range m.GetExtensionProviders() {
		wanted = wanted ||
			p.GetOpentelemetry().GetServiceAttributeEnrichment() == meshv1alpha1.MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS
	}
	if !wanted {
		return ""
	}
	var app corev1.Container // first container other than the proxy
	for _, c := range containers {
		if c.Name != proxyContainer {
			app = c
			break
		}
	}
	instance := ""
	if app.Name != "" {
		instance = namespace + ".$(POD_NAME)." + app.Name
	}
	var list []string
	for _, a := range []struct{ name, other string }{
		{"service.namespace", namespace},
		{"service.version", nonEmpty(labels[names.LabelAppVersion], imageTag(app.Image))},
		{"service.instance.id", instance},
	} {
		if v := nonEmpty(annotations["resource.opentelemetry.io/"+a.name], a.other); v != "" {
			list = append(list, a.name+"="+v)
		}
	}
	return strings.Join(list, ",")
}

// imageTag returns the tag of an image, or "" if it has none.
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}
