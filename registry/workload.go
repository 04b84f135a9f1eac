package registry

import (
	"strings"

	"github.com/istiod-lite/istiod-lite/api/names"
)

// SPIFFE returns the identity of a service account.
func SPIFFE(trustDomain, namespace, account string) string {
	return "spiffe://" + trustDomain + "/ns/" + namespace + "/sa/" + account
}

// ParseLocality parses region/zone/subzone. Missing parts are empty.
func ParseLocality(s string) Locality {
	region, rest, _ := strings.Cut(s, "/")
	zone, subzone, _ := strings.Cut(rest, "/")
	return Locality{region, zone, subzone}
}

// LocalityOf returns the locality in labels. A label value cannot hold a slash, so dots replace them. A value that does
// hold a slash was not written by Kubernetes, and its dots are kept.
func LocalityOf(labels map[string]string) (Locality, bool) {
	for _, name := range []string{names.LabelLocality, names.LabelLegacyLocality} {
		if s := labels[name]; s != "" {
			if !strings.Contains(s, "/") {
				s = strings.ReplaceAll(s, ".", "/")
			}
			return ParseLocality(s), true
		}
	}
	return Locality{}, false
}

// CanonicalName returns the name of a workload's service in telemetry.
func CanonicalName(labels map[string]string, workload string) string {
	return firstLabel(labels, workload, names.LabelCanonicalName, names.LabelAppName, "app")
}

// CanonicalRevision returns the revision of a workload in telemetry. A missing one and "latest" mean the same; both are
// returned as empty, as in the metadata of endpoints.
func CanonicalRevision(labels map[string]string) string {
	r := firstLabel(labels, "", names.LabelCanonicalRevision, names.LabelAppVersion, "version")
	if r == "latest" {
		return ""
	}
	return r
}

// EntryTLSMode returns the TLS mode of a WorkloadEntry or an inline endpoint. Its label decides. Without a label, a
// service account implies a sidecar.
func EntryTLSMode(labels map[string]string, serviceAccount string) string {
	mode, labelled := labels[names.LabelTLSMode]
	if mode == "istio" || !labelled && serviceAccount != "" {
		return "istio"
	}
	return ""
}

func firstLabel(labels map[string]string, otherwise string, keys ...string) string {
	for _, k := range keys {
		if v := labels[k]; v != "" {
			return v
		}
	}
	return otherwise
}

// Reachable reports whether a workload has an address, or is reached by the gateways of its network.
func (w *Workload) Reachable() bool { return len(w.Addresses) > 0 || w.Network != "" }

// Endpoint returns the workload as an endpoint of a service port, at its primary address. The caller sets its health.
func (w *Workload) Endpoint(servicePort string, port uint32) *Endpoint {
	e := &Endpoint{
		Port: port, ServicePort: servicePort, Labels: w.Labels, Identity: w.Identity, Locality: w.Locality, Network: w.Network,
		Cluster: w.Cluster,
		Weight:  w.Weight, TLSMode: w.TLSMode, NodeName: w.NodeName,
		Workload: w.Owner, Namespace: w.Namespace, CanonicalName: CanonicalName(w.Labels, w.Owner),
		CanonicalRevision: CanonicalRevision(w.Labels),
	}
	if len(w.Addresses) > 0 {
		e.Address = w.Addresses[0]
	}
	if strings.HasPrefix(e.Address, "unix://") {
		e.Port = 0
	}
	return e
}
