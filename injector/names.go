package injector

// Annotations, and names inside pods, that are an interface with users and agents.
const (
	proxyContainer = "istio-proxy"

	templatesAnnotation  = "inject.istio.io/templates"
	statusAnnotation     = "sidecar.istio.io/status"
	overridesAnnotation  = "proxy.istio.io/overrides"
	configAnnotation     = "proxy.istio.io/config"
	rewriteAnnotation    = "sidecar.istio.io/rewriteAppHTTPProbers"
	imageTypeAnnotation  = "sidecar.istio.io/proxyImageType"
	statusPortAnnotation = "status.sidecar.istio.io/port"
	mergeAnnotation      = "prometheus.istio.io/merge-metrics"
	securePortAnnotation = "prometheus.istio.io/secure-port"

	probersVariable    = "ISTIO_KUBE_APP_PROBERS"
	prometheusVariable = "ISTIO_PROMETHEUS_ANNOTATIONS"
	securePortVariable = "ENVOY_SECURE_MERGED_METRICS_PORT"
	clusterVariable    = "ISTIO_META_CLUSTER_ID"
	networkVariable    = "ISTIO_META_NETWORK"
)
