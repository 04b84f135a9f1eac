package kube

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/registry"
)

// pod is the stored part of one Pod. The object itself is not kept.
type pod struct {
	workload *registry.Workload
	hostname string // with a subdomain: host name in the headless service of the subdomain's name
	domain   string
	ended    bool // phase is Succeeded or Failed
	failed   bool
	deleting bool
}

func (p *pod) equal(o *pod) bool {
	return p.workload.Equal(o.workload) && p.hostname == o.hostname && p.domain == o.domain && p.ended == o.ended && p.deleting == o.deleting
}

// isWorkload reports whether a pod is returned as a workload.
func (p *pod) isWorkload() bool { return p != nil && !p.ended && len(p.workload.Addresses) > 0 }

func (r *Registry) applyPod(n name, o *kinds.Object) {
	old := r.pods[n]
	var next *pod
	if o != nil {
		next = r.newPod(n, o)
	}
	if next == nil || next.failed { // failed pods of a cluster are not read at all
		if old != nil {
			r.rememberOld(r.key(kinds.Pod, n))
			r.markPodDirty(n, old)
			r.unindexPod(n, old)
			delete(r.pods, n)
		}
		return
	}
	if old != nil && old.equal(next) {
		return
	}
	r.rememberOld(r.key(kinds.Pod, n))
	if old != nil {
		r.markPodDirty(n, old)
		r.unindexPod(n, old)
	}
	r.pods[n] = next
	r.indexPod(n, next)
	r.markPodDirty(n, next)
}

func (r *Registry) indexPod(n name, p *pod) {
	addTo(r.nodePods, p.workload.NodeName, n)
	if !p.ended && len(p.workload.Addresses) == 0 {
		r.withoutIP++
	}
	if !p.isWorkload() {
		return
	}
	// Pods of the host network share their node's address, which does not identify them.
	if !p.workload.HostNetwork {
		for _, ip := range p.workload.Addresses {
			addTo(r.ipPods, ip, n)
		}
	}
	if !p.deleting && !r.opts.Controllers {
		r.podSelectors.SetMember(n, n.namespace, p.workload.Labels)
	}
}

func (r *Registry) unindexPod(n name, p *pod) {
	removeFrom(r.nodePods, p.workload.NodeName, n)
	if !p.ended && len(p.workload.Addresses) == 0 {
		r.withoutIP--
	}
	for _, ip := range p.workload.Addresses {
		removeFrom(r.ipPods, ip, n)
	}
	r.podSelectors.RemoveMember(n)
}

// markPodDirty marks the services whose endpoints depend on the pod, as it is indexed now.
func (r *Registry) markPodDirty(n name, p *pod) {
	for sl := range r.podSlices[n].All {
		r.markSliceDirty(sl)
	}
	for _, ip := range p.workload.Addresses {
		for sl := range r.ipSlices[ip].All {
			r.markSliceDirty(sl)
		}
	}
	r.podSelectors.Selecting(n, r.markDirty)
}

// relocate updates the pod's locality and network after a change of its node or namespace.
func (r *Registry) relocate(n name, p *pod) {
	moved := *p.workload
	if r.locate(&moved); moved.Equal(p.workload) {
		return
	}
	r.rememberOld(r.key(kinds.Pod, n))
	next := *p
	next.workload = &moved
	r.pods[n] = &next
	r.markPodDirty(n, &next)
}

func (r *Registry) locate(w *registry.Workload) {
	var ok bool
	if w.Locality, ok = registry.LocalityOf(w.Labels); !ok {
		w.Locality = r.nodes[w.NodeName]
	}
	w.Network = ""
	if len(w.Addresses) > 0 {
		w.Network = r.namespaces.Network(w.Addresses[0], w.Labels)
	}
}

// podByAddress returns the pod that owns an address. While one pod replaces another both may have it: then it is the
// youngest, or the first by name.
func (r *Registry) podByAddress(ip string) *pod {
	var best *pod
	for n := range r.ipPods[ip].All {
		p := r.pods[n]
		if best == nil || p.workload.Created.After(best.workload.Created) ||
			p.workload.Created.Equal(best.workload.Created) && n.compare(name{best.workload.Namespace, best.workload.Name}) < 0 {
			best = p
		}
	}
	return best
}

func (r *Registry) applyNode(node string, o *kinds.Object) {
	l := LocalityOfNode(o)
	if r.nodes[node] == l {
		return
	}
	if r.nodes[node] = l; o == nil {
		delete(r.nodes, node)
	}
	for n := range r.nodePods[node].All {
		r.relocate(n, r.pods[n])
	}
}

// LocalityOfNode returns the locality of a Node, or the zero Locality for nil.
func LocalityOfNode(o *kinds.Object) registry.Locality {
	if o == nil {
		return registry.Locality{}
	}
	return registry.Locality{
		Region:  firstLabel(o.Labels, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaRegion),
		Zone:    firstLabel(o.Labels, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone),
		SubZone: o.Labels[names.LabelSubzone],
	}
}

func firstLabel(labels map[string]string, a, b string) string {
	if v := labels[a]; v != "" {
		return v
	}
	return labels[b]
}

// PodFacts is the part of a Pod that the registry reads, beside its labels: a tenth of a Pod's size. A source with many
// Pods may use PodFacts as an object's Spec.
type PodFacts struct {
	ServiceAccount, NodeName string
	Hostname, Subdomain      string
	Owner                    string            // name of its workload
	ProxyImage               string            // image of the container istio-proxy; empty if there is none
	Revision                 string            // revision of the control plane whose proxy it has; empty if that is unknown
	Addresses                []string          // addresses, the primary one first
	Ports                    map[string]uint32 // named ports; never modified
	HostNetwork              bool
	Ready                    bool
	Deleting                 bool
	Running                  bool // phase is Running: all its containers were created
	Ended                    bool // phase is Succeeded or Failed
	Failed                   bool
}

// ProxyContainer is the name of the container that injection adds.
const ProxyContainer = "istio-proxy"

// PodFactsOf returns the PodFacts of a Pod that has those labels.
func PodFactsOf(p *corev1.Pod, labels map[string]string) *PodFacts {
	controller := &metav1.OwnerReference{}
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		controller = c
	}
	f := &PodFacts{
		ServiceAccount: p.Spec.ServiceAccountName, NodeName: p.Spec.NodeName, Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain,
		Owner:       WorkloadName(p.Name, p.GenerateName != "", labels, controller.Kind, controller.Name),
		HostNetwork: p.Spec.HostNetwork, Deleting: p.DeletionTimestamp != nil, Ended: p.Status.Phase == corev1.PodSucceeded ||
			p.Status.Phase == corev1.PodFailed, Failed: p.Status.Phase == corev1.PodFailed, Running: p.Status.Phase == corev1.PodRunning,
		Revision: cmp.Or(RevisionOfStatus(p.Annotations[names.AnnotationStatus]), p.Annotations[names.LabelRevision]),
	}
	f.Ready = ready(p) && !f.Deleting && !f.Ended
	if f.ServiceAccount == "" {
		f.ServiceAccount = "default" // the default that admission sets
	}
	if p.Status.PodIP != "" {
		f.Addresses = append(f.Addresses, p.Status.PodIP)
	}
	for _, ip := range p.Status.PodIPs {
		if ip.IP != "" && !slices.Contains(f.Addresses, ip.IP) {
			f.Addresses = append(f.Addresses, ip.IP)
		}
	}
	ports := func(c *corev1.Container) {
		if c.Name == ProxyContainer {
			f.ProxyImage = c.Image
		}
		for _, p := range c.Ports {
			f.AddPort(p.Name, string(p.Protocol), uint32(p.ContainerPort))
		}
	}
	for i := range p.Spec.Containers {
		ports(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		// An init container with restartPolicy Always is a sidecar and serves as long as the pod.
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			ports(c)
		}
	}
	return f
}

// RevisionOfStatus returns the revision of the control plane that injected a Pod's proxy, from the value of the
// annotation sidecar.istio.io/status. Pods of managed gateways have the annotation istio.io/rev instead.
func RevisionOfStatus(annotation string) string {
	var status struct {
		Revision string `json:"revision"`
	}
	if annotation == "" || json.Unmarshal([]byte(annotation), &status) != nil {
		return ""
	}
	return status.Revision
}

// FactsOfPod returns the PodFacts of a Pod of any source.
func FactsOfPod(o *kinds.Object) *PodFacts {
	if f, ok := o.Spec.(*PodFacts); ok {
		return f
	}
	return PodFactsOf(o.Spec.(*corev1.Pod), o.Labels)
}

func (r *Registry) newPod(n name, o *kinds.Object) *pod {
	f := FactsOfPod(o)
	w := &registry.Workload{
		WorkloadKey: r.key(kinds.Pod, n), Labels: o.Labels, ServiceAccount: f.ServiceAccount,
		Identity: registry.SPIFFE(r.opts.TrustDomain, n.namespace, f.ServiceAccount),
		NodeName: f.NodeName, Cluster: r.opts.Cluster, HostNetwork: f.HostNetwork, Ready: f.Ready, TLSMode: tlsMode(o.Labels),
		Owner: f.Owner, Created: o.Created,
		Addresses: f.Addresses, Ports: f.Ports,
	}
	r.locate(w)
	return &pod{workload: w, hostname: f.Hostname, domain: f.Subdomain, ended: f.Ended, failed: f.Failed, deleting: f.Deleting}
}

// AddPort adds a named TCP port. If a name is repeated, the first port is used.
func (f *PodFacts) AddPort(name, protocol string, port uint32) {
	if name == "" || protocol != "" && protocol != string(corev1.ProtocolTCP) {
		return
	}
	if f.Ports == nil {
		f.Ports = map[string]uint32{}
	}
	if _, taken := f.Ports[name]; !taken {
		f.Ports[name] = port
	}
}

// ready reports whether a pod is ready. A pod without the condition was written by hand, and is taken for ready.
func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true
}

func tlsMode(labels map[string]string) string {
	if m := labels[names.LabelTLSMode]; m == "istio" {
		return m
	}
	return ""
}

// WorkloadName returns the name of a pod's workload: from its label, or else from the controller that generated the
// pod's name, or else the pod's own name.
func WorkloadName(pod string, generated bool, labels map[string]string, controllerKind, controller string) string {
	if l := labels[names.LabelWorkloadName]; l != "" {
		return l
	}
	if !generated {
		return pod
	}
	switch controllerKind {
	case "":
		return pod
	case "ReplicaSet":
		if hash := labels["pod-template-hash"]; hash != "" {
			return strings.TrimSuffix(controller, "-"+hash)
		}
	case "Job":
		return cronJob(controller)
	}
	return controller
}

// cronJob removes the suffix that a CronJob adds to the names of its Jobs: minutes since 1970, with eight to ten
// digits.
func cronJob(job string) string {
	i := strings.LastIndexByte(job, '-')
	digits := job[i+1:]
	if i <= 0 || len(digits) < 8 || len(digits) > 10 || strings.Trim(digits, "0123456789") != "" {
		return job
	}
	return job[:i]
}
