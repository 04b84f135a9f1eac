package analysis

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// Pod holds the fields of a Pod that the analysis uses.
type Pod struct {
	Ended       bool
	Addresses   []string
	HostNetwork bool
	Ready       bool              // the Pod is ready, or does not say
	Ports       map[string]uint32 // named TCP ports
	Numbers     []uint32          // numbers of all ports
	Named       bool              // only named ports are known
	Account     string            // name of its service account
	Proxy       bool              // the Pod has a proxy
	ProxyImage  string            // image of the proxy; empty if it is unknown or there is no proxy
	ProbeHosts  []ProbeHost       // hosts in probes and hooks of containers, with their fields
}

// podOf extracts a Pod from the Kubernetes type.
func podOf(p *corev1.Pod) Pod {
	unready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue }
	out := Pod{
		Ended:       p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		HostNetwork: p.Spec.HostNetwork,
		Ready:       p.DeletionTimestamp == nil && !slices.ContainsFunc(p.Status.Conditions, unready),
		Ports:       map[string]uint32{},
		Account:     cmp.Or(p.Spec.ServiceAccountName, "default"),
		Proxy:       HasProxy(p.Labels) || p.Annotations[names.AnnotationStatus] != "",
	}
	if p.Status.PodIP != "" {
		out.Addresses = append(out.Addresses, p.Status.PodIP)
	}
	for _, ip := range p.Status.PodIPs {
		out.Addresses = append(out.Addresses, ip.IP)
	}
	for n, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == "istio-proxy" {
				out.Proxy, out.ProxyImage = true, list[i].Image
			} else {
				out.ProbeHosts = append(out.ProbeHosts,
					probeHostsOf(fmt.Sprintf("spec.%s[%d]", []string{"containers", "initContainers"}[n], i), &list[i])...)
			}
			for _, c := range list[i].Ports {
				number := uint32(c.ContainerPort) //nolint:gosec // validated
				out.Numbers = append(out.Numbers, number)
				if c.Name != "" && cmp.Or(c.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
					out.Ports[c.Name] = number
				}
			}
		}
	}
	return out
}

// HasProxy reports whether a Pod has the labels that injection adds with a proxy.
func HasProxy(labels map[string]string) bool {
	return labels[names.LabelTLSMode] != "" || labels[names.LabelCanonicalName] != "" && labels[names.LabelCanonicalRevision] != ""
}

// Slice holds the fields of an EndpointSlice that the analysis uses.
type Slice struct {
	Service   string            // name of its Service
	Ports     map[string]uint32 // port numbers by the name of the Service's port
	Endpoints int

	Endpoint func(i int) Endpoint // returns the i-th endpoint
}

// Endpoint is an endpoint of an EndpointSlice.
type Endpoint struct {
	Addresses []string
	Pod       kinds.Key // Pod that the endpoint names; zero if it names none
}

func sliceOf(o *kinds.Object, s *discoveryv1.EndpointSlice) Slice {
	out := Slice{Service: s.Labels[discoveryv1.LabelServiceName], Ports: map[string]uint32{}, Endpoints: len(s.Endpoints)}
	out.Endpoint = func(i int) Endpoint {
		e := Endpoint{Addresses: s.Endpoints[i].Addresses}
		if r := s.Endpoints[i].TargetRef; r != nil && r.Kind == kinds.Pod.Name {
			e.Pod = kinds.Key{Kind: kinds.Pod, Namespace: cmp.Or(r.Namespace, o.Namespace), Name: r.Name, Cluster: o.Cluster}
		}
		return e
	}
	for _, p := range s.Ports {
		if p.Port != nil {
			name := ""
			if p.Name != nil {
				name = *p.Name
			}
			out.Ports[name] = uint32(*p.Port) //nolint:gosec // validated
		}
	}
	return out
}
