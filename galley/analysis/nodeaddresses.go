package analysis

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
)

// apiService is the Service of the API server, which itself writes its nodes' addresses into the EndpointSlice.
const apiService = "kubernetes"

// nodes are the Nodes of the cluster by address.
type nodes map[netip.Addr]*kinds.Object

// nodeAddresses reports objects that send requests to an address of a Node, where the kubelet and other processes of
// the host listen. It ignores objects of remote clusters.
func (a *analysis) nodeAddresses() {
	all := nodes{}
	for _, o := range a.of(kinds.Node) {
		if o.Cluster != "" {
			continue
		}
		for _, at := range o.Spec.(*corev1.Node).Status.Addresses {
			if at.Type != corev1.NodeInternalIP && at.Type != corev1.NodeExternalIP {
				continue
			}
			if ip, err := netip.ParseAddr(at.Address); err == nil && all[ip.Unmap()] == nil {
				all[ip.Unmap()] = o
			}
		}
	}
	if len(all) == 0 {
		return
	}
	for _, o := range a.of(kinds.ServiceEntry) {
		spec := o.Spec.(*networkingv1.ServiceEntry)
		for i, text := range spec.Addresses {
			a.nodeAddress(o, all.at(text), indexed("spec.addresses", i), text)
		}
		for i, e := range spec.Endpoints {
			a.nodeAddress(o, all.at(e.Address), indexed("spec.endpoints", i)+".address", e.Address)
		}
	}
	for _, o := range a.of(kinds.WorkloadEntry) {
		address := o.Spec.(*networkingv1.WorkloadEntry).Address
		a.nodeAddress(o, all.at(address), "spec.address", address)
	}
	a.sliceAddresses(all)
}

// sliceAddresses checks EndpointSlices. It skips the slices that the cluster's own controllers write, which are those
// of the API server and of namespaces kube-*. Endpoints that are Pods on the host network may have a Node's address.
func (a *analysis) sliceAddresses(all nodes) {
	var pods map[kinds.Key]*workload // filled when an endpoint names a Pod
	for _, o := range a.of(kinds.EndpointSlice) {
		if o.Cluster != "" || strings.HasPrefix(o.Namespace, "kube-") {
			continue
		}
		f := a.slice(o)
		if f.Service == apiService && o.Namespace == metav1.NamespaceDefault {
			continue
		}
		for i := range f.Endpoints {
			e := f.Endpoint(i)
			for j, text := range e.Addresses {
				node := all.at(text)
				if node == nil {
					continue
				}
				if e.Pod != (kinds.Key{}) {
					if pods == nil {
						pods = map[kinds.Key]*workload{}
						for _, w := range a.pods {
							pods[w.object.Key] = w
						}
					}
					if w := pods[e.Pod]; w == nil || w.pod.HostNetwork {
						continue
					}
				}
				a.nodeAddress(o, node, indexed(indexed("endpoints", i)+".addresses", j), text)
			}
		}
	}
}

func (a *analysis) nodeAddress(o, node *kinds.Object, field, text string) {
	if node == nil {
		return
	}
	fix := "select the Pods that serve by a Service"
	if o.Kind == kinds.EndpointSlice {
		fix = "name a Pod with hostNetwork in targetRef"
	}
	a.report(o, diag.Warning, codeNodeAddress, field,
		fix+"; if a server of the host is meant, annotate the object with "+kinds.AnnotationSuppress+": "+codeNodeAddress,
		"%s is an address of %s: requests reach what listens on the host, such as its kubelet", text, node)
}

// at returns the Node with an address, or nil. A range of one address stands for that address; other ranges match no
// Node.
func (n nodes) at(text string) *kinds.Object {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.IsSingleIP() {
			return nil
		}
		ip = p.Addr()
	}
	return n[ip.Unmap()]
}
