package names

// Labels that decide which control plane an object is for, and which Pods get a proxy.
const (
	LabelRevision  = "istio.io/rev"
	LabelInjection = "istio-injection"             // of Namespaces
	LabelInject    = "sidecar.istio.io/inject"     // of Pods; also an annotation
	LabelDataplane = "istio.io/dataplane-mode"     // of Namespaces and Pods
	LabelNamespace = "kubernetes.io/metadata.name" // which an API server puts on every Namespace
)

// Labels that say what a workload is.
const (
	LabelTLSMode           = "security.istio.io/tlsMode"
	LabelWorkloadName      = "service.istio.io/workload-name"
	LabelCanonicalName     = "service.istio.io/canonical-name"
	LabelCanonicalRevision = "service.istio.io/canonical-revision"
	LabelDraining          = "istio.io/draining"
)

// Labels of what is deployed for a Gateway of the Gateway API.
const (
	LabelGateway      = "gateway.networking.k8s.io/gateway-name"
	LabelGatewayClass = "gateway.networking.k8s.io/gateway-class-name"
	LabelManaged      = "gateway.istio.io/managed" // the controller, with - for /
)

// Labels that say where a workload runs.
const (
	LabelRegion         = "topology.kubernetes.io/region"
	LabelZone           = "topology.kubernetes.io/zone"
	LabelSubzone        = "topology.istio.io/subzone"
	LabelNetwork        = "topology.istio.io/network"
	LabelCluster        = "topology.istio.io/cluster"
	LabelHost           = "kubernetes.io/hostname"
	LabelLocality       = "topology.istio.io/locality" // region.zone.subzone
	LabelLegacyLocality = "istio-locality"
)

// IsPlaceLabel reports whether the place where a workload runs, as far as it is known, decides a label.
func IsPlaceLabel(name string) bool {
	switch name {
	case LabelRegion, LabelZone, LabelSubzone, LabelNetwork, LabelCluster, LabelHost:
		return true
	}
	return false
}
