package names

// SessionsVariable is the environment variable that lets LabelSession and LabelSessionHeader have an effect.
const SessionsVariable = "PILOT_ENABLE_PERSISTENT_SESSION_FILTER"

// HeadlessChainsVariable is the environment variable that gives headless services one listener instead of one for each
// address.
const HeadlessChainsVariable = "PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER"

// ScopeGatewaysVariable is the environment variable that limits Gateways to the workloads of their own namespaces.
const ScopeGatewaysVariable = "PILOT_SCOPE_GATEWAY_TO_NAMESPACE"

// Keys of labels. Keys that many packages read are in labels.go.
const (
	LabelAppManagedBy     = "app.kubernetes.io/managed-by"
	LabelAppName          = "app.kubernetes.io/name"
	LabelAppVersion       = "app.kubernetes.io/version"
	LabelAutoAllocate     = "networking.istio.io/enable-autoallocate-ip"
	LabelConfig           = "istio.io/config"
	LabelDefaultsForClass = "gateway.istio.io/defaults-for-class"
	LabelGatewayPort      = "networking.istio.io/gatewayPort"
	LabelOldGateway       = "istio.io/gateway-name"
	LabelServiceName      = "kubernetes.io/service-name"
	LabelSession          = "istio.io/persistent-session"
	LabelSessionHeader    = "istio.io/persistent-session-header"
	LabelTag              = "istio.io/tag"
)

// Keys of annotations.
const (
	AnnotationAccounts                = "alpha.istio.io/kubernetes-serviceaccounts"
	AnnotationAddresses               = "networking.istio.io/addresses"
	AnnotationAmbient                 = "ambient.istio.io/redirection"
	AnnotationBundleVersion           = "gateway.networking.k8s.io/bundle-version"
	AnnotationCanonicalAccounts       = "alpha.istio.io/canonical-serviceaccounts"
	AnnotationChannel                 = "gateway.networking.k8s.io/channel"
	AnnotationConnected               = "istio.io/connectedAt"
	AnnotationControlPlaneClusters    = "topology.istio.io/controlPlaneClusters"
	AnnotationDisconnected            = "istio.io/disconnectedAt"
	AnnotationDryRun                  = "istio.io/dry-run"
	AnnotationExcludeInboundPorts     = "traffic.sidecar.istio.io/excludeInboundPorts"
	AnnotationExcludeInterfaces       = "traffic.sidecar.istio.io/excludeInterfaces"
	AnnotationExcludeOutboundIPRanges = "traffic.sidecar.istio.io/excludeOutboundIPRanges"
	AnnotationExcludeOutboundPorts    = "traffic.sidecar.istio.io/excludeOutboundPorts"
	AnnotationExportTo                = "networking.istio.io/exportTo"
	AnnotationExtraStatTags           = "sidecar.istio.io/extraStatTags"
	AnnotationHealthChecks            = "proxy.istio.io/health-checks-enabled"
	AnnotationHealthy                 = "networking.istio.io/healthy"
	AnnotationIgnorePolicy            = "istio.io/ignore-policy-attachment"
	AnnotationIncludeInboundPorts     = "traffic.sidecar.istio.io/includeInboundPorts"
	AnnotationIncludeOutboundIPRanges = "traffic.sidecar.istio.io/includeOutboundIPRanges"
	AnnotationIncludeOutboundPorts    = "traffic.sidecar.istio.io/includeOutboundPorts"
	AnnotationIngressClass            = "kubernetes.io/ingress.class"
	AnnotationInterceptionMode        = "sidecar.istio.io/interceptionMode"
	AnnotationKubevirtInterfaces      = "traffic.sidecar.istio.io/kubevirtInterfaces"
	AnnotationLastApplied             = "kubectl.kubernetes.io/last-applied-configuration"
	AnnotationMergeMetrics            = "prometheus.istio.io/merge-metrics"
	AnnotationNativeSidecar           = "sidecar.istio.io/nativeSidecar"
	AnnotationNodeSelector            = "traffic.istio.io/nodeSelector"
	AnnotationOverrides               = "proxy.istio.io/overrides"
	AnnotationProxyCPU                = "sidecar.istio.io/proxyCPU"
	AnnotationProxyCPULimit           = "sidecar.istio.io/proxyCPULimit"
	AnnotationProxyConfig             = "proxy.istio.io/config"
	AnnotationProxyImage              = "sidecar.istio.io/proxyImage"
	AnnotationProxyImageType          = "sidecar.istio.io/proxyImageType"
	AnnotationProxyMemory             = "sidecar.istio.io/proxyMemory"
	AnnotationProxyMemoryLimit        = "sidecar.istio.io/proxyMemoryLimit"
	AnnotationReadinessDelay          = "readiness.status.sidecar.istio.io/initialDelaySeconds"
	AnnotationReadinessFailures       = "readiness.status.sidecar.istio.io/failureThreshold"
	AnnotationReadinessPeriod         = "readiness.status.sidecar.istio.io/periodSeconds"
	AnnotationRegistrationGroup       = "istio.io/autoRegistrationGroup"
	AnnotationRewriteAppHTTPProbers   = "sidecar.istio.io/rewriteAppHTTPProbers"
	AnnotationRouteSemantics          = "internal.istio.io/route-semantics"
	AnnotationScrapeTargets           = "prometheus.istio.io/scrape-targets"
	AnnotationSecurePort              = "prometheus.istio.io/secure-port"
	AnnotationServiceType             = "networking.istio.io/service-type"
	AnnotationStatsCompression        = "sidecar.istio.io/statsCompression"
	AnnotationStatsHistogramBuckets   = "sidecar.istio.io/statsHistogramBuckets"
	AnnotationStatus                  = "sidecar.istio.io/status"
	AnnotationStatusPort              = "status.sidecar.istio.io/port"
	AnnotationSuppress                = "galley.istio.io/analyze-suppress"
	AnnotationTemplates               = "inject.istio.io/templates"
	AnnotationTrafficDistribution     = "networking.istio.io/traffic-distribution"
	AnnotationUserVolume              = "sidecar.istio.io/userVolume"
	AnnotationUserVolumeMount         = "sidecar.istio.io/userVolumeMount"
	AnnotationVirtualInterfaces       = "istio.io/reroute-virtual-interfaces"
	AnnotationWorkloadController      = "istio.io/workloadController"
)

// Names of other kinds with a domain: controllers, types of resources and of Secrets, extra fields of users in a
// TokenReview, options of listeners, application protocols of ports, and a taint.
const (
	DebugType                  = "istio.io/debug"
	ExtraNodeName              = "authentication.kubernetes.io/node-name"
	ExtraPodName               = "authentication.kubernetes.io/pod-name"
	ExtraPodUID                = "authentication.kubernetes.io/pod-uid"
	GatewayController          = "istio.io/gateway-controller"
	IngressController          = "istio.io/ingress-controller"
	MeshController             = "istio.io/mesh-controller"
	OptionCipherSuites         = "gateway.istio.io/tls-cipher-suites"
	OptionListenerProtocol     = "gateway.istio.io/listener-protocol"
	OptionTerminateMode        = "gateway.istio.io/tls-terminate-mode"
	ProtocolH2C                = "kubernetes.io/h2c"
	ProtocolWS                 = "kubernetes.io/ws"
	ProtocolWSS                = "kubernetes.io/wss"
	SecretTypeCA               = "istio.io/ca-root"
	TaintNotReady              = "cni.istio.io/not-ready"
	UnmanagedGatewayController = "istio.io/unmanaged-gateway"
)
