package ingress

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ingressv1 "k8s.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// addresses returns the wanted status of every Ingress of the mesh: the addresses of the proxies for clients. These are
// the external addresses of the ingressService, or without one the external addresses of the nodes that run the
// proxies.
func (s *stage) addresses(in derive.Objects) (map[string]any, []diag.Diagnostic) {
	var ips, names []string
	add := func(address string) {
		list := &names
		if _, err := netip.ParseAddr(address); err == nil {
			list = &ips
		}
		if address != "" && !slices.Contains(*list, address) {
			*list = append(*list, address)
		}
	}
	var found []diag.Diagnostic
	if name := in.Mesh.GetIngressService(); name != "" {
		service := in.Get(kinds.Key{Kind: kinds.Service, Namespace: s.o.Namespace, Name: name})
		if service == nil {
			found = []diag.Diagnostic{{
				Severity: diag.Info, Code: "IngressService", Object: "MeshConfig", Field: "ingressService",
				Fix:     "name the Service of the proxies, or write none",
				Message: "there is no Service " + s.o.Namespace + "/" + name + ": the status of Ingresses says no address",
			}}
		} else {
			ofService(service.Spec.(*corev1.Service), add)
		}
	} else {
		for _, p := range in.Select(kinds.Pod, s.o.Namespace, map[string]string{"istio": proxySelector(in)}) {
			pod := kube.FactsOfPod(p)
			node := in.Get(kinds.Key{Kind: kinds.Node, Name: pod.NodeName})
			if pod.Ended || node == nil {
				continue
			}
			for _, a := range node.Spec.(*corev1.Node).Status.Addresses {
				if a.Type == corev1.NodeExternalIP {
					add(a.Address)
				}
			}
		}
	}
	slices.Sort(ips)
	slices.Sort(names)
	list := lists.Map(ips, func(ip string) any { return map[string]any{"ip": ip} })
	for _, name := range names {
		list = append(list, map[string]any{"hostname": name})
	}
	return status(list), found
}

func status(addresses []any) map[string]any {
	if len(addresses) == 0 {
		return map[string]any{"loadBalancer": nil}
	}
	return map[string]any{"loadBalancer": map[string]any{"ingress": addresses}}
}

// ofService adds the external addresses of a Service.
func ofService(s *corev1.Service, add func(string)) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		add(s.Spec.ExternalName)
		return
	}
	for _, address := range s.Spec.ExternalIPs {
		add(address)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		add(in.IP)
		add(strings.ToLower(in.Hostname))
	}
}

// currentStatus returns the present status of an Ingress.
func currentStatus(o *kinds.Object) map[string]any {
	var list []any
	for _, in := range o.Spec.(*ingressv1.Ingress).Status.LoadBalancer.Ingress {
		entry := map[string]any{}
		if in.IP != "" {
			entry["ip"] = in.IP
		}
		if in.Hostname != "" {
			entry["hostname"] = in.Hostname
		}
		if len(in.Ports) > 0 {
			entry["ports"] = len(in.Ports)
		}
		list = append(list, entry)
	}
	return status(list)
}
