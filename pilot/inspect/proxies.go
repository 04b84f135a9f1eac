package inspect

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/diff"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// Pods returns the accepted Pods, as NAME.NAMESPACE.
func (i *Inspection) Pods() []string {
	list := lists.Map(i.objectsOf(kinds.Pod), func(o *kinds.Object) string { return o.Name + "." + o.Namespace })
	slices.Sort(list)
	return list
}

// Workloads returns all possible senders of requests, as NAME.NAMESPACE: Pods, WorkloadEntries with a proxy,
// WorkloadGroups, and the proxies that are connected to a server.
func (i *Inspection) Workloads() []string {
	list := i.Pods()
	for _, o := range i.objectsOf(kinds.WorkloadEntry) {
		if hasAgent(o) {
			list = append(list, o.Name+"."+o.Namespace)
		}
	}
	for _, o := range i.objectsOf(kinds.WorkloadGroup) {
		list = append(list, o.Name+"."+o.Namespace)
	}
	if i.server != nil {
		list = slices.AppendSeq(list, maps.Keys(i.server.proxies))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// PodNode returns the node of a Pod's proxy, as injection would write it, or nil if there is no such Pod.
func (i *Inspection) PodNode(name, namespace string) *corev3.Node {
	o := i.world.Object(kinds.Key{Kind: kinds.Pod, Namespace: namespace, Name: name})
	if o == nil {
		return nil
	}
	return i.node(i.proxy(o), o)
}

// proxy returns the proxy of a Pod, as injection would write it. The proxy is a gateway if its template or its argument
// says so, or if a Gateway selects the Pod and no application container is known: the containers of Pods read from a
// cluster are not kept.
func (i *Inspection) proxy(o *kinds.Object) *node.Proxy {
	f := kube.FactsOfPod(o)
	p := &node.Proxy{
		Type: node.Sidecar, Name: o.Name, Namespace: o.Namespace, Domain: o.Namespace + ".svc." + i.o.Domain, IPs: f.Addresses,
		Cluster: i.o.ClusterID, NodeName: f.NodeName,
		Workload: f.Owner, Account: f.ServiceAccount, MeshID: i.Snapshot.Mesh.GetTrustDomain(), Labels: o.Labels,
		Annotations: o.Annotations, Interception: node.Redirect,
	}
	gateway, application := o.Annotations[names.AnnotationTemplates] == "gateway", false
	if pod, whole := o.Spec.(*corev1.Pod); whole {
		for _, c := range pod.Spec.Containers {
			application = application || c.Name != kube.ProxyContainer
			gateway = gateway || c.Name == kube.ProxyContainer && slices.Contains(c.Args, string(node.Router))
		}
	}
	if gateway || !application && slices.ContainsFunc(i.objectsOf(kinds.Gateway), func(g *kinds.Object) bool {
		selector := g.Spec.(*networkingv1.Gateway).GetSelector()
		extra, _ := g.Extra.(*kinds.GatewayExtra)
		return kinds.GatewayReaches(g, o.Namespace, i.Snapshot.ScopedGateways) && len(selector) > 0 && kinds.Selects(selector, o.Labels) ||
			extra != nil && extra.Selects(o.Namespace, o.Labels)
	}) {
		p.Type = node.Router
	}
	if mode := o.Annotations[names.AnnotationInterceptionMode]; mode != "" {
		p.Interception = node.Interception(mode)
	}
	if UsesXDS(o) {
		p.Generator = node.GRPC
	}
	return p
}

// UsesXDS reports whether the templates of a Pod say that its application uses xDS itself, without a proxy.
func UsesXDS(o *kinds.Object) bool {
	return slices.ContainsFunc(strings.Split(o.Annotations[names.AnnotationTemplates], ","), func(name string) bool {
		name = strings.TrimSpace(name)
		return name == "grpc-agent" || name == "grpc-simple"
	})
}

// hasAgent reports whether a WorkloadEntry belongs to a workload with a proxy: it has the label that says so, or an
// identity.
func hasAgent(o *kinds.Object) bool {
	spec, ok := o.Spec.(*networkingv1.WorkloadEntry)
	if !ok || o.Cluster != "" {
		return false
	}
	for _, labels := range []map[string]string{spec.GetLabels(), o.Labels} {
		if mode, said := labels[names.LabelTLSMode]; said {
			return mode == "istio"
		}
	}
	return spec.GetServiceAccount() != "" || o.Annotations[names.AnnotationRegistrationGroup] != ""
}

// entryOf returns the WorkloadEntry of an unregistered machine of a WorkloadGroup. It has no address.
func entryOf(o *kinds.Object) *kinds.Object {
	spec := o.Spec.(*networkingv1.WorkloadGroup)
	entry := &kinds.Object{Key: o.Key, Labels: spec.GetMetadata().GetLabels(), Annotations: spec.GetMetadata().GetAnnotations(),
		Spec: &networkingv1.WorkloadEntry{}}
	if t := spec.GetTemplate(); t != nil {
		entry.Spec = t
	}
	return entry
}

// entryProxy returns the proxy of a WorkloadEntry's workload.
func (i *Inspection) entryProxy(o *kinds.Object) *node.Proxy {
	spec := o.Spec.(*networkingv1.WorkloadEntry)
	labels := maps.Clone(o.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, spec.GetLabels())
	p := &node.Proxy{
		Type: node.Sidecar, Name: o.Name, Namespace: o.Namespace, Domain: o.Namespace + ".svc." + i.o.Domain, Cluster: i.o.ClusterID,
		Network:  spec.GetNetwork(),
		Workload: o.Name, Account: spec.GetServiceAccount(), MeshID: i.Snapshot.Mesh.GetTrustDomain(), Labels: labels,
		Annotations: o.Annotations, Interception: node.Redirect,
	}
	if _, err := netip.ParseAddr(spec.GetAddress()); err == nil { // it may be a DNS name or a socket
		p.IPs = []string{spec.GetAddress()}
	}
	return p
}

// sender is the sender of a request.
type sender struct {
	*node.Proxy
	proxied  bool // whether it has a proxy
	identity string
}

// connected returns the proxy of that name that is connected to the server, or nil. The agent of a machine uses the
// name of its host: a WorkloadEntry is matched by namespace and address.
func (i *Inspection) connected(name string) *node.Proxy {
	all := i.server.proxies
	if p := all[name]; p != nil {
		return p
	}
	at := strings.LastIndexByte(name, '.')
	o := i.world.Object(kinds.Key{Kind: kinds.WorkloadEntry, Name: name[:max(at, 0)], Namespace: name[at+1:]})
	if o == nil || !hasAgent(o) {
		return nil
	}
	address := o.Spec.(*networkingv1.WorkloadEntry).GetAddress()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if p := all[id]; address != "" && p.Namespace == o.Namespace && slices.Contains(p.IPs, address) {
			return p
		}
	}
	return nil
}

// sender returns the sender with a name, or nil.
func (i *Inspection) sender(name string) *sender {
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return nil
	}
	var s *sender
	var of *kinds.Object
	key := kinds.Key{Name: name[:at], Namespace: name[at+1:]}
	key.Kind = kinds.Pod
	if of = i.world.Object(key); of != nil {
		s = &sender{Proxy: i.proxy(of), proxied: i.injected(of)}
	} else {
		key.Kind = kinds.WorkloadEntry
		if of = i.world.Object(key); of != nil && hasAgent(of) {
			s = &sender{Proxy: i.entryProxy(of), proxied: true}
		}
		key.Kind = kinds.WorkloadGroup
		if o := i.world.Object(key); o != nil && s == nil {
			of = entryOf(o)
			s = &sender{Proxy: i.entryProxy(of), proxied: true}
		}
	}
	if i.server != nil {
		if p := i.connected(name); p != nil {
			account := p.Account
			if s != nil && account == "" {
				account = s.Account
			}
			known := *p
			known.Account = account
			of = nil // the connected proxy has reported everything
			s = &sender{Proxy: &known, proxied: true}
		}
	}
	if s == nil {
		return nil
	}
	s.identity = registry.SPIFFE(i.Snapshot.Mesh.GetTrustDomain(), s.Namespace, s.Account)
	// Parsing the formatted node gives the proxy as a server knows it.
	n := node.Format(s.Proxy)
	if of != nil {
		n = i.node(s.Proxy, of)
	}
	p, err := node.Parse(n)
	if err != nil {
		s.proxied = false
		return s
	}
	if s.Generator == node.GRPC {
		p.Generator = node.GRPC
	}
	s.Proxy = p
	return s
}

// afterInjection reports whether a Pod shows that the Pods were read after injection: it has a proxy. In hand-written
// files the Pod of a gateway may have one although the others do not.
func (i *Inspection) afterInjection(o *kinds.Object) bool {
	files := i.o.Cluster == nil && i.server == nil
	return o.Cluster == "" && kube.FactsOfPod(o).ProxyImage != "" && !(files && i.proxy(o).Type == node.Router)
}

// injected reports whether a Pod has a proxy. If no Pod has one, the Pods were read before injection, and it reports
// whether the Pod would get one.
func (i *Inspection) injected(o *kinds.Object) bool {
	f := kube.FactsOfPod(o)
	switch {
	case f.HostNetwork || f.Ended:
		return false
	case f.ProxyImage != "" || o.Annotations[names.AnnotationTemplates] == "gateway" || UsesXDS(o):
		return true
	case slices.ContainsFunc(i.objectsOf(kinds.Pod), i.afterInjection):
		return false
	}
	return i.wantsProxy(o)
}

// wantsProxy reports whether neither a Pod nor its namespace says that it gets no proxy.
func (i *Inspection) wantsProxy(o *kinds.Object) bool {
	namespace := i.world.Object(kinds.Key{Kind: kinds.Namespace, Name: o.Namespace})
	return o.Labels[names.LabelInject] != "false" && o.Annotations[names.LabelInject] != "false" &&
		(namespace == nil || namespace.Labels[names.LabelInjection] != "disabled")
}

// proxies returns the proxies of the own cluster, by NAME.NAMESPACE: of the Pods that have one, and of WorkloadEntries.
// If no Pod was read after injection, each Pod that would get a proxy has one.
func (i *Inspection) proxies() map[string]*node.Proxy {
	injected, all := map[string]*node.Proxy{}, map[string]*node.Proxy{}
	after := false
	take := func(p *node.Proxy, o *kinds.Object, into ...map[string]*node.Proxy) {
		// Parsing the formatted node gives the proxy as a server knows it.
		if p, err := node.Parse(i.node(p, o)); err == nil {
			for _, m := range into {
				m[p.Name+"."+p.Namespace] = p
			}
		}
	}
	for _, o := range i.objectsOf(kinds.WorkloadEntry) {
		if hasAgent(o) {
			take(i.entryProxy(o), o, injected, all)
		}
	}
	for _, o := range i.objectsOf(kinds.Pod) {
		f := kube.FactsOfPod(o)
		if o.Cluster != "" || f.HostNetwork || f.Ended {
			continue
		}
		after = after || i.afterInjection(o)
		has := f.ProxyImage != "" || o.Annotations[names.AnnotationTemplates] == "gateway" || UsesXDS(o)
		wants := i.wantsProxy(o)
		switch {
		case has && wants:
			take(i.proxy(o), o, injected, all)
		case has:
			take(i.proxy(o), o, injected)
		case wants:
			take(i.proxy(o), o, all)
		}
	}
	if after {
		return injected
	}
	return all
}

// resources returns what a proxy is sent by type URL: all clusters and listeners, and the endpoints and routes that
// these name. An application that uses xDS itself asks for listeners by name, and is sent the resources that each
// refers to.
func (i *Inspection) resources(translator *translate.Translator, p *node.Proxy, k cohort.Key,
	listeners []string) (map[string][]*envoy.Resource, error) {
	out := map[string][]*envoy.Resource{}
	var interner envoy.NameInterner
	get := func(typeURL string, names *envoy.Names) error {
		u, err := translator.Get(i.Snapshot, k, typeURL, names)
		out[typeURL] = slices.AppendSeq(out[typeURL], u.All)
		return err
	}
	if p.Generator == node.GRPC {
		if listeners == nil {
			listeners = diff.Listeners(translator, i.Snapshot, p, k)
		}
		err := diff.Proxyless(listeners, func(typeURL string, list []string) ([]*envoy.Resource, error) {
			err := get(typeURL, interner.Intern(list))
			return out[typeURL], err
		})
		return out, err
	}
	named := diff.References{}
	for _, typeURL := range []string{envoy.ClusterType, envoy.ListenerType} {
		if err := get(typeURL, nil); err != nil {
			return nil, err
		}
		for _, r := range out[typeURL] {
			if err := named.Add(typeURL, r); err != nil {
				return nil, fmt.Errorf("read %s: %w", r.Name, err)
			}
		}
	}
	delete(named, envoy.SecretType) // the content of secrets is not shown
	if p.SelfDiscovery {
		named[envoy.EndpointType] = append(named[envoy.EndpointType], names.SelfCluster)
	}
	for typeURL, list := range named {
		if err := get(typeURL, interner.Intern(list)); err != nil {
			return nil, err
		}
	}
	return out, nil
}
