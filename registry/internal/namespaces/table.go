package namespaces

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/registry"
)

const annotationTraffic = "networking.istio.io/traffic-distribution"

// Table holds what namespaces say.
type Table struct {
	systemNamespace string
	meshNetworks    func(address string) string
	network         string
	traffic         map[string]string
}

// New gives an empty table. meshNetworks answers for an address by the mesh's list of networks, empty when none holds it; nil is a mesh without such a list.
func New(systemNamespace string, meshNetworks func(address string) string) *Table {
	return &Table{systemNamespace: systemNamespace, meshNetworks: meshNetworks, traffic: map[string]string{}}
}

// Apply reads a change of a Namespace, and tells whether the network of addresses and the traffic distribution in that namespace may now differ.
func (t *Table) Apply(c kinds.Change) (network, traffic bool) {
	var labels, annotations map[string]string
	if c.Object != nil {
		labels, annotations = c.Object.Labels, c.Object.Annotations
	}
	if c.Name == t.systemNamespace {
		network = t.network != labels[registry.LabelNetwork]
		t.network = labels[registry.LabelNetwork]
	}
	d := distribution(annotations[annotationTraffic])
	traffic = t.traffic[c.Name] != d
	if t.traffic[c.Name] = d; d == "" {
		delete(t.traffic, c.Name)
	}
	return network, traffic
}

// Empty tells that namespaces say nothing.
func (t *Table) Empty() bool { return t.network == "" && len(t.traffic) == 0 }

// Network gives the network of an address whose workload has these labels, or empty: by its own label, the cluster's network, or the mesh's list.
func (t *Table) Network(address string, labels map[string]string) string {
	if n := labels[registry.LabelNetwork]; n != "" {
		return n
	}
	if t.network != "" || t.meshNetworks == nil {
		return t.network
	}
	return t.meshNetworks(address)
}

// TrafficDistribution of a service: its field, if it has one, says most, then its annotation, then that of its namespace.
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
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode,
	} {
		if strings.EqualFold(s, d) {
			return d
		}
	}
	return ""
}
