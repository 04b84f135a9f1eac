package cohort

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Inputs is all that a proxy's configuration depends on beside the Snapshot. Comparable.
type Inputs struct {
	Scope           Scope
	Outbound        Outbound
	Inbound         Inbound
	Address         string   // its own primary address: a pod has no listener for itself among a headless service's
	Node            string   // where services prefer the proxy's own node, or are called there alone; else empty
	Location        Location // where services prefer what is close; else zero
	UnknownWorkload bool     // nobody knows its workload
}

// Key is a Proxy made of few words: each part exists once, so that it costs nothing to compare it and to look things up by it.
type Key struct {
	Scope     Handle[Scope]
	Listeners Handle[Listeners]
	Inbound   Handle[Inbound]

	Address         string
	Node            string
	Location        Location
	UnknownWorkload bool
}

// Listeners is what listeners for outgoing traffic depend on.
type Listeners struct {
	Scope    Scope
	Outbound Outbound
}

// Inputs gives what the key stands for.
func (k Key) Inputs() Inputs {
	l := k.Listeners.Value()
	return Inputs{Scope: l.Scope, Outbound: l.Outbound, Inbound: k.Inbound.Value(), Address: k.Address, Node: k.Node, Location: k.Location, UnknownWorkload: k.UnknownWorkload}
}

// Shared is the key less what is the proxy's own: its inbound half, its address, and whether its workload is known.
func (k Key) Shared() Key {
	return Key{Scope: k.Scope, Listeners: k.Listeners, Node: k.Node, Location: k.Location}
}

// KeepInbound returns k with the inbound half of last, if the proxy's workload was known when its key was last and is not known now. Else it returns k and false.
func (k Key) KeepInbound(last Key) (Key, bool) {
	if !k.UnknownWorkload || last.UnknownWorkload {
		return k, false
	}
	k.Inbound = last.Inbound
	return k, true
}

// Location is where a proxy runs.
type Location struct {
	Locality registry.Locality
	Network  string
}

// Scope is what clusters, endpoints and routes depend on.
type Scope struct {
	Type            node.Type
	Namespace       string
	Sidecar         *kinds.Object // in force; nil for routers
	Cluster         string        // empty for the server's own
	Network         string
	NetworkView     frozen.List[string] // the networks that it asks for, sorted; empty: all
	Domain          string              // <ns>.svc.<suffix>: which short names a virtual host answers to
	Capabilities    node.Capabilities
	IPv4, IPv6      bool
	AutoAddress     bool                         // it resolves names to allotted addresses
	Gateways        frozen.List[*kinds.Object]   // of a router: those that select it, by precedence
	Rules           frozen.List[*kinds.Object]   // DestinationRules whose workload selector matches it
	ExcludedMatches frozen.List[ExcludedMatches] // matches on source labels that do not hold for it
	Targets         frozen.List[Target]          // of a router: what it listens on for its own service ports
}

// ExcludedMatches names the matches of one VirtualService whose source labels are not the proxy's, as scope.ExcludedMatches writes them.
type ExcludedMatches struct {
	Object  *kinds.Object
	Matches string
}

// Outbound is what listeners for outgoing traffic depend on beside the scope.
type Outbound struct {
	Interception  node.Interception
	HTTPProxyPort uint32
	HTTP10        bool
	Unprivileged  bool
	Tags          Tags
	DenyAll       bool // of a router: policies select it that are not translated
}

// Tags are the literals that traces of a workload carry. Sampling is the proxy's own, in percent, empty for the mesh's.
type Tags struct {
	CanonicalService, CanonicalRevision, Cluster, Mesh, Namespace, Sampling string
}

// Inbound is what clusters and listeners for incoming traffic depend on. The zero Inbound has none: a router's.
type Inbound struct {
	Sidecar      bool
	Interception node.Interception
	Capabilities node.Capabilities
	HTTP10       bool
	IPv4, IPv6   bool
	Namespace    string
	Tags         Tags
	Targets      frozen.List[Target]
	Ingress      *kinds.Object // a Sidecar with ingress listeners: they replace the services' chains
	Address      string        // the proxy's address, only where an ingress listener names it
	Peer         frozen.List[*kinds.Object]
	DenyAll      bool // policies select the workload that are not translated
}

// Target is one port of one service that the proxy's workload serves.
type Target struct {
	Service    *registry.Service
	Port       uint32                     // the service's
	TargetPort uint32                     // the workload's
	Rules      frozen.List[*kinds.Object] // DestinationRules of the service, as seen from its own namespace
}

// Resolve reduces a proxy to its keys.
func Resolve(x *scope.Index, p *node.Proxy) Inputs {
	w := workload(x, p)
	addresses := p.IPs
	if len(addresses) == 0 {
		addresses = w.Addresses
	}
	var v4, v6 bool
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a); err == nil {
			v4, v6 = v4 || ip.Unmap().Is4(), v6 || !ip.Unmap().Is4()
		}
	}
	k := Inputs{
		Scope: Scope{
			Type: p.Type, Namespace: p.Namespace, Cluster: x.ClusterKey(p.Cluster), Network: p.Network, NetworkView: frozen.ListOf(slices.Compact(slices.Sorted(slices.Values(p.NetworkView)))...), Domain: p.Domain,
			Capabilities: p.Capabilities, IPv4: v4 || !v6, IPv6: v6, AutoAddress: p.DNSCapture && p.DNSAutoAllocate,
		},
		Outbound:        Outbound{Interception: p.Interception, HTTPProxyPort: p.HTTPProxyPort, HTTP10: p.HTTP10, Unprivileged: p.Unprivileged, Tags: tags(p, w)},
		UnknownWorkload: w.Kind == nil,
	}
	if x.HasNodeLocal() || x.HasTrafficDistribution() {
		k.Node = cmp.Or(w.NodeName, p.NodeName)
	}
	if x.HasTrafficDistribution() {
		k.Location = Location{cmp.Or(w.Locality, claimed(p)), cmp.Or(w.Network, p.Network)}
	}
	if len(addresses) > 0 {
		k.Address = addresses[0]
	}
	k.Scope.Rules = rules(x, p.Namespace, w.Labels)
	k.Scope.ExcludedMatches = foreign(x, w.Labels)
	targets := targets(x, w, addresses)
	if p.Type == node.Router {
		k.Scope.Gateways = gateways(x, w.Labels)
		k.Outbound.DenyAll = guarded(x, p.Namespace, w.Labels)
		k.Scope.Targets = targets
		return k
	}
	k.Scope.Sidecar = scope.SidecarFor(x, p.Namespace, w.Labels)
	k.Inbound = Inbound{
		Sidecar: true, Interception: p.Interception, Capabilities: p.Capabilities, HTTP10: p.HTTP10, IPv4: k.Scope.IPv4, IPv6: v6, Namespace: p.Namespace,
		Tags: k.Outbound.Tags, Targets: targets, Peer: PeerAuthentications(x, p.Namespace, w.Labels),
		DenyAll: guarded(x, p.Namespace, w.Labels),
	}
	if s := k.Scope.Sidecar; s != nil {
		if spec := s.Spec.(*networkingv1.Sidecar); len(spec.Ingress) > 0 || spec.InboundConnectionPool != nil {
			k.Inbound.Ingress = s
			if slices.ContainsFunc(spec.Ingress, namesAddress) {
				k.Inbound.Address = k.Address
			}
		}
	}
	return k
}

// namesAddress tells an ingress listener that stands for, or forwards to, the proxy's own address.
func namesAddress(l *networkingv1alpha3.IstioIngressListener) bool {
	return l.Bind == "" || strings.HasPrefix(l.DefaultEndpoint, "0.0.0.0:") || strings.HasPrefix(l.DefaultEndpoint, "[::]:")
}

// workload finds out whose proxy it is. Where nobody knows, what it says of itself counts.
func workload(x *scope.Index, p *node.Proxy) *registry.Workload {
	if w := Workload(x.Snapshot, p); w != nil {
		return w
	}
	return &registry.Workload{
		WorkloadKey: registry.WorkloadKey{Namespace: p.Namespace, Name: p.Name}, Labels: p.Labels, Addresses: p.IPs, Owner: p.Workload,
		Locality: claimed(p), Cluster: p.Cluster, Network: p.Network,
	}
}

// Workload gives whose proxy it is: the Pod of its cluster by the name in its id, the WorkloadEntry of its name, whatever owns its address in its cluster; nil
// where the snapshot has none. The entry of a machine that belongs to a remote cluster may be registered in the server's own.
func Workload(x *snapshot.Snapshot, p *node.Proxy) *registry.Workload {
	cluster := x.ClusterKey(p.Cluster)
	for _, k := range []registry.WorkloadKey{{Kind: kinds.Pod, Cluster: cluster}, {Kind: kinds.WorkloadEntry, Cluster: cluster}, {Kind: kinds.WorkloadEntry}} {
		k.Namespace, k.Name = p.Namespace, p.Name
		if w := x.Workload(k); w != nil {
			return w
		}
	}
	for _, ip := range p.IPs {
		if w := x.WorkloadByAddress(cluster, ip); w != nil && w.Namespace == p.Namespace {
			return w
		}
	}
	return nil
}

func claimed(p *node.Proxy) registry.Locality {
	return registry.Locality{Region: p.Locality[0], Zone: p.Locality[1], SubZone: p.Locality[2]}
}

func tags(p *node.Proxy, w *registry.Workload) Tags {
	return Tags{
		CanonicalService:  registry.CanonicalName(w.Labels, cmp.Or(p.Workload, w.Owner, "unknown")),
		CanonicalRevision: cmp.Or(registry.CanonicalRevision(w.Labels), "latest"),
		Cluster:           p.Cluster, Mesh: p.MeshID, Namespace: p.Namespace, Sampling: p.TracingSampling,
	}
}

// targets finds the service ports that a workload serves, of the services as its cluster has them: those whose selector matches its labels, and those that
// have an endpoint at its address without selecting it.
func targets(x *scope.Index, w *registry.Workload, addresses []string) frozen.List[Target] {
	var found []Target
	cluster := x.ClusterKey(w.Cluster)
	for s := range x.CandidateServices(w.Namespace, w.Labels, addresses, w.Kind != nil) {
		s = s.ClusterVersion(cluster)
		switch {
		case s == nil:
		case s.Selector != nil && s.Namespace == w.Namespace && w.Kind != nil:
			if len(s.Selector) == 0 || !kinds.Selects(s.Selector, w.Labels) {
				continue
			}
			for i := range s.Ports {
				if t := targetPort(&s.Ports[i], w); t != 0 {
					found = append(found, Target{s, s.Ports[i].Number, t, frozen.List[*kinds.Object]{}})
				}
			}
		case s.Selector == nil || w.Kind == nil:
			var numbers map[string]uint32 // of ports, by name
			for _, e := range x.Endpoints(s.Key()).List {
				if slices.Contains(addresses, e.Address) && (x.ClusterKey(e.Cluster) == cluster || s.Provider == registry.External && !e.HealthKnown) {
					if numbers == nil {
						numbers = numbersByName(s)
					}
					if n, ok := numbers[e.ServicePort]; ok {
						found = append(found, Target{s, n, e.Port, frozen.List[*kinds.Object]{}})
					}
				}
			}
		}
	}
	for i := range found {
		if i > 0 && found[i].Service == found[i-1].Service {
			found[i].Rules = found[i-1].Rules
			continue
		}
		found[i].Rules = x.Rules(found[i].Service.Namespace, found[i].Service, frozen.List[*kinds.Object]{})
	}
	return frozen.ListOf(found...)
}

// numbersByName returns the numbers of a service's ports, of several with one name that of the first.
func numbersByName(s *registry.Service) map[string]uint32 {
	by := make(map[string]uint32, len(s.Ports))
	for i := range slices.Backward(s.Ports) {
		by[s.Ports[i].Name] = s.Ports[i].Number
	}
	return by
}

func targetPort(p *registry.Port, w *registry.Workload) uint32 {
	if n := w.Ports[p.Name]; n != 0 && w.Kind == kinds.WorkloadEntry {
		return n // it says itself where it serves the port
	}
	if p.TargetPort == "" {
		return p.Number
	}
	if n, err := strconv.ParseUint(p.TargetPort, 10, 16); err == nil {
		return uint32(n)
	}
	return w.Ports[p.TargetPort]
}

func foreign(x *scope.Index, labels map[string]string) frozen.List[ExcludedMatches] {
	var list []ExcludedMatches
	for v := range x.WithSourceLabels() {
		if m := scope.ExcludedMatches(v.Spec, labels); m != "" {
			list = append(list, ExcludedMatches{v.Object, m})
		}
	}
	return frozen.ListOf(list...)
}

func gateways(x *scope.Index, labels map[string]string) frozen.List[*kinds.Object] {
	var found []*kinds.Object
	for _, o := range x.AllObjects(kinds.Gateway) {
		if sel := o.Spec.(*networkingv1.Gateway).Selector; len(sel) == 0 || kinds.Selects(sel, labels) {
			found = append(found, o)
		}
	}
	return frozen.ListOf(found...)
}

// PeerAuthentications gives the policies in force for a workload: at most one of the mesh, one of the namespace and one that selects it, in that order.
func PeerAuthentications(x *scope.Index, namespace string, labels map[string]string) frozen.List[*kinds.Object] {
	return PeerAuthenticationsInNamespace(x, namespace)(labels)
}

// PeerAuthenticationsInNamespace is PeerAuthentications for many workloads of a namespace.
func PeerAuthenticationsInNamespace(x *scope.Index, namespace string) func(labels map[string]string) frozen.List[*kinds.Object] {
	var list, selecting []*kinds.Object
	root := x.RootNamespace()
	for _, ns := range []string{root, namespace} {
		if ns == root && len(list) > 0 {
			continue // the proxy lives in the root namespace
		}
		for _, o := range x.Objects(kinds.PeerAuthentication, ns) {
			if len(o.Spec.(*securityv1.PeerAuthentication).GetSelector().GetMatchLabels()) == 0 {
				list = append(list, o)
				break
			}
		}
	}
	selector := func(o *kinds.Object) map[string]string {
		return o.Spec.(*securityv1.PeerAuthentication).GetSelector().GetMatchLabels()
	}
	for _, o := range x.Objects(kinds.PeerAuthentication, namespace) {
		if len(selector(o)) > 0 {
			selecting = append(selecting, o)
		}
	}
	all := frozen.ListOf(list...)
	return func(labels map[string]string) frozen.List[*kinds.Object] {
		for _, o := range selecting {
			if kinds.Selects(selector(o), labels) {
				return frozen.ListOf(append(slices.Clip(list), o)...)
			}
		}
		return all
	}
}

// rules gives the DestinationRules of a namespace whose workload selector matches.
func rules(x *scope.Index, namespace string, labels map[string]string) frozen.List[*kinds.Object] {
	var found []*kinds.Object
	for o := range x.RulesWithSelector(namespace) {
		if kinds.Selects(o.Spec.(*networkingv1.DestinationRule).GetWorkloadSelector().GetMatchLabels(), labels) {
			found = append(found, o)
		}
	}
	return frozen.ListOf(found...)
}

// guarded tells that an authorization policy selects a workload, or one on the tokens of its requests: in its namespace or in the root namespace. Policies that only
// log guard nothing.
func guarded(x *scope.Index, namespace string, labels map[string]string) bool {
	for _, ns := range []string{namespace, x.RootNamespace()} {
		for _, o := range x.Objects(kinds.AuthorizationPolicy, ns) {
			spec := o.Spec.(*securityv1.AuthorizationPolicy)
			if spec.Action != securityv1.AuthorizationPolicy_AUDIT && kinds.Selects(spec.GetSelector().GetMatchLabels(), labels) {
				return true
			}
		}
		for _, o := range x.Objects(kinds.RequestAuthentication, ns) {
			if kinds.Selects(o.Spec.(*securityv1.RequestAuthentication).GetSelector().GetMatchLabels(), labels) {
				return true
			}
		}
	}
	return false
}
