package injector

import "github.com/istiod-lite/istiod-lite/api/names"

// Annotations, and names inside pods, that users and agents rely on.
const (
	proxyContainer = "istio-proxy"

	templatesAnnotation  = names.AnnotationTemplates
	statusAnnotation     = names.AnnotationStatus
	overridesAnnotation  = names.AnnotationOverrides
	configAnnotation     = names.AnnotationProxyConfig
	rewriteAnnotation    = names.AnnotationRewriteAppHTTPProbers
	imageTypeAnnotation  = names.AnnotationProxyImageType
	statusPortAnnotation = names.AnnotationStatusPort
	mergeAnnotation      = names.AnnotationMergeMetrics
	securePortAnnotation = names.AnnotationSecurePort

	probersVariable    = "ISTIO_KUBE_APP_PROBERS"
	prometheusVariable = "ISTIO_PROMETHEUS_ANNOTATIONS"
	securePortVariable = "ENVOY_SECURE_MERGED_METRICS_PORT"
	clusterVariable    = "ISTIO_META_CLUSTER_ID"
	networkVariable    = "ISTIO_META_NETWORK"
)
