package injector

import (
	corev1 "k8s.io/api/core/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

func otelResourceAttributes(m *meshv1alpha1.MeshConfig, annotations, labels map[string]string, namespace string, containers []corev1.Container) string {
	return ""
}
