package namespaces

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
)

const annotationTraffic = names.AnnotationTrafficDistribution

// Table holds the network of the cluster and the traffic distribution of namespaces.
type Table struct {
	systemNamespace string
	meshNetworks    *mesh.ClusterNetworks
	network         string
	traffic         map[string]string
}

// New returns an empty table. meshNetworks is nil for a mesh without a list of networks.
func New(systemNamespace string, meshNetworks *mesh.ClusterNetworks) *Table {
	return &Table{systemNamespace: systemNamespace, meshNetworks: meshNetworks, traffic: map[string]string{}}
}

// Apply applies a change of a Namespace. It reports whether the network of addresses, and the traffic distribution in
// that namespace, may have changed.
func (t *Table) Apply(c kinds.Change) (network, traffic bool) {
	var labels, annotations map[string]string
	if c.Object != nil {
		labels, annotations = c.Object.Labels, c.Object.Annotations
	}
	if c.Name == t.systemNamespace {
		network = t.network != labels[names.LabelNetwork]
		t.network = labels[names.LabelNetwork]
	}
	d := distribution(annotations[annotationTraffic])
	traffic = t.traffic[c.Name] != d
	if t.traffic[c.Name] = d; d == "" {
		delete(t.traffic, c.Name)
	}
	return network, traffic
}

// Empty reports whether no namespace sets anything.
func (t *Table) Empty() bool { return t.network == "" && len(t.traffic) == 0 }

// Network returns the network of an address whose workload has these labels: by its own label, the cluster's network,
// or the mesh's list; empty if it has none.
func (t *Table) Network(address string, labels map[string]string) string {
	if n := labels[names.LabelNetwork]; n != "" {
		return n
	}
	if t.network != "" {
		return t.network
	}
	return t.meshNetworks.Network(address)
}

// TrafficDistribution returns the traffic distribution of a service: by its field, its annotation, or the annotation of
// its namespace, in this order.
func (t *Table) TrafficDistribution(namespace string, annotations map[string]string, field *string) string {
	if field != nil {
		if d := distribution(*field); d != "" {
			return d
		}
	}
	if a, ok := annotations[annotationTraffic]; ok {
		return distribution(a)
	}
	return t.traffic[namespace]
}

func distribution(s string) string {
	for _, d := range []string{
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode,
	} {
		if strings.EqualFold(s, d) {
			return d
		}
	}
	return ""
}
