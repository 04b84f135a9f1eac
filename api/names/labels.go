package names

// Labels that decide which control plane an object is for, and which Pods get a proxy.
const (
	LabelRevision  = "istio.io/rev"
	LabelInjection = "istio-injection"             // on Namespaces
	LabelInject    = "sidecar.istio.io/inject"     // on Pods; also an annotation
	LabelDataplane = "istio.io/dataplane-mode"     // on Namespaces and Pods
	LabelNamespace = "kubernetes.io/metadata.name" // set on every Namespace by the API server
)

// Labels that say what a workload is.
const (
	LabelTLSMode           = "security.istio.io/tlsMode"
	LabelWorkloadName      = "service.istio.io/workload-name"
	LabelCanonicalName     = "service.istio.io/canonical-name"
	LabelCanonicalRevision = "service.istio.io/canonical-revision"
	LabelDraining          = "istio.io/draining"
)

// Labels of the objects that are deployed for a Gateway of the Gateway API.
const (
	LabelGateway      = "gateway.networking.k8s.io/gateway-name"
	LabelGatewayClass = "gateway.networking.k8s.io/gateway-class-name"
	LabelManaged      = "gateway.istio.io/managed" // name of the controller, with - for /
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

// IsPlaceLabel reports whether the place of a workload gives it a label: its region, zone, subzone, network, cluster or
// node. registry.Labels says which of the place and the workload's own labels takes precedence.
func IsPlaceLabel(name string) bool {
	switch name {
	case LabelRegion, LabelZone, LabelSubzone, LabelNetwork, LabelCluster, LabelHost:
		return true
	}
	return false
}
