package registry

import "strings"

// Labels of workloads that service discovery reads.
const (
	LabelTLSMode           = "security.istio.io/tlsMode"
	LabelNetwork           = "topology.istio.io/network"
	LabelLocality          = "topology.istio.io/locality"
	LabelLegacyLocality    = "istio-locality"
	LabelWorkloadName      = "service.istio.io/workload-name"
	LabelCanonicalName     = "service.istio.io/canonical-name"
	LabelCanonicalRevision = "service.istio.io/canonical-revision"
	LabelDraining          = "istio.io/draining"
)

// SPIFFE is the identity of a service account.
func SPIFFE(trustDomain, namespace, account string) string {
	return "spiffe://" + trustDomain + "/ns/" + namespace + "/sa/" + account
}

// ParseLocality reads region/zone/subzone; what is left out is empty.
func ParseLocality(s string) Locality {
	region, rest, _ := strings.Cut(s, "/")
	zone, subzone, _ := strings.Cut(rest, "/")
	return Locality{region, zone, subzone}
}

// LocalityOf reads the locality that labels name. A label value may not hold a slash, so dots stand for them, unless a slash shows that it was written by
// something else than Kubernetes.
func LocalityOf(labels map[string]string) (Locality, bool) {
	for _, name := range []string{LabelLocality, LabelLegacyLocality} {
		if s := labels[name]; s != "" {
			if !strings.Contains(s, "/") {
				s = strings.ReplaceAll(s, ".", "/")
			}
			return ParseLocality(s), true
		}
	}
	return Locality{}, false
}

// CanonicalName is the service that a workload's telemetry is filed under.
func CanonicalName(labels map[string]string, workload string) string {
	return first(labels, workload, LabelCanonicalName, "app.kubernetes.io/name", "app")
}

// CanonicalRevision is the revision that a workload's telemetry is filed under. Nothing and "latest" mean the same; both are given as empty, as they are
// written in the metadata of endpoints.
func CanonicalRevision(labels map[string]string) string {
	r := first(labels, "", LabelCanonicalRevision, "app.kubernetes.io/version", "version")
	if r == "latest" {
		return ""
	}
	return r
}

// EntryTLSMode is the TLS mode of a WorkloadEntry or an inline endpoint: its label decides; without one, whoever has a service account has a sidecar.
func EntryTLSMode(labels map[string]string, serviceAccount string) string {
	mode, labelled := labels[LabelTLSMode]
	if mode == "istio" || !labelled && serviceAccount != "" {
		return "istio"
	}
	return ""
}

func first(labels map[string]string, otherwise string, names ...string) string {
	for _, n := range names {
		if v := labels[n]; v != "" {
			return v
		}
	}
	return otherwise
}

// Reachable tells a workload that has an address, or that is reached by the gateways of its network alone.
func (w *Workload) Reachable() bool { return len(w.Addresses) > 0 || w.Network != "" }

// Endpoint is the workload as an endpoint of a service port, at its primary address. Its health is the caller's to say.
func (w *Workload) Endpoint(servicePort string, port uint32) *Endpoint {
	e := &Endpoint{
		Port: port, ServicePort: servicePort, Labels: w.Labels, Identity: w.Identity, Locality: w.Locality, Network: w.Network, Cluster: w.Cluster,
		Weight: w.Weight, TLSMode: w.TLSMode, NodeName: w.NodeName,
		Workload: w.Owner, Namespace: w.Namespace, CanonicalName: CanonicalName(w.Labels, w.Owner), CanonicalRevision: CanonicalRevision(w.Labels),
	}
	if len(w.Addresses) > 0 {
		e.Address = w.Addresses[0]
	}
	if strings.HasPrefix(e.Address, "unix://") {
		e.Port = 0
	}
	return e
}
