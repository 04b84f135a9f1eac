package clusterset

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// Domain is the DNS domain of services in all clusters.
const Domain = "clusterset.local"

// Names of istiod's environment variables for the API.
const (
	DiscoveryVariable    = "ENABLE_MCS_SERVICE_DISCOVERY"
	HostsVariable        = "ENABLE_MCS_HOST"
	ClusterLocalVariable = "ENABLE_MCS_CLUSTER_LOCAL"
	AutoExportVariable   = "ENABLE_MCS_AUTO_EXPORT"
	GroupVariable        = "MCS_API_GROUP"
	VersionVariable      = "MCS_API_VERSION"
)

// Options are the settings for the API. The zero value ignores its objects.
type Options struct {
	// Discovery restricts the endpoints of services that a cluster does not export to clients of the same cluster.
	Discovery bool
	// Hosts makes a service for each ServiceImport, with the host NAME.NAMESPACE.svc.clusterset.local. It requires
	// Discovery.
	Hosts bool
	// ClusterLocal restricts the endpoints of all hosts of the cluster's own domain to clients of the same cluster. It
	// requires Hosts.
	ClusterLocal bool
	// AutoExport creates a ServiceExport for each Service of a cluster, in the API's Version. It requires nothing.
	AutoExport bool
	Version    string
}

// Host returns the host of a service in all clusters.
func Host(name, namespace string) string { return name + "." + namespace + ".svc." + Domain }

// IsHost reports whether a host is in the domain of services in all clusters.
func IsHost(host string) bool { return strings.HasSuffix(host, ".svc."+Domain) }

// Addresses returns the addresses of a ServiceImport, sorted. It leaves out the ones that are not IP addresses. Without
// an address a ServiceImport has no host.
func Addresses(s *mcsv1alpha1.ServiceImport) []string {
	var list []string
	for _, ip := range s.Spec.IPs {
		if _, err := netip.ParseAddr(ip); err == nil {
			list = append(list, ip)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Exportable reports whether a Service can be exported. An ExternalName has no endpoints to export.
func Exportable(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

// Importable reports whether a Service can have an address in all clusters. A headless Service has none, and neither
// has an ExternalName.
func Importable(s *corev1.Service) bool {
	return Exportable(s) && s.Spec.ClusterIP != corev1.ClusterIPNone
}
