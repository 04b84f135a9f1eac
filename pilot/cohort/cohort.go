package cohort

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/http3"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Inputs are everything that a proxy's configuration depends on besides the Snapshot. Inputs are comparable.
type Inputs struct {
	Client   Client
	Outbound Outbound
	Inbound  Inbound
	// Address is the proxy's primary address. A pod has no outbound listener for its own address among those of a
	// headless service.
	Address string
	// Node is the proxy's node. It is empty unless some service is limited to the caller's node, prefers close
	// endpoints or sorts them by node.
	Node string
	// Location is where the proxy runs. It is zero unless some service prefers endpoints by location.
	Location Location
	// UnknownWorkload reports that the Snapshot has no workload for the proxy.
	UnknownWorkload bool
	Patches         Patches
	// Self is the input of the cluster of the proxy's own workload. It is zero for proxies without that cluster.
	Self Self
}

// Key is Inputs with each part interned, so that comparisons and map lookups are cheap.
type Key struct {
	Client    Handle[Client]
	Listeners Handle[Listeners]
	Inbound   Handle[Inbound]
	Patches   Handle[Patches] // zero if nothing is patched
	Self      Handle[Self]    // zero for a proxy without a cluster of its own workload

	Address         string
	Node            string
	Location        Location
	UnknownWorkload bool
}

// Listeners is the input of outbound listeners.
type Listeners struct {
	Client   Client
	Outbound Outbound
}

// Inputs returns the Inputs that were interned as k.
func (k Key) Inputs() Inputs {
	l := k.Listeners.Value()
	return Inputs{
		Client: l.Client, Outbound: l.Outbound, Inbound: k.Inbound.Value(), Patches: k.Patches.Value(),
		Self: k.Self.Value(), Address: k.Address, Node: k.Node, Location: k.Location, UnknownWorkload: k.UnknownWorkload,
	}
}

// Cached returns the parts of k that caches are keyed by. It leaves out the fields that are not interned.
func (k Key) Cached() Key {
	return Key{Client: k.Client, Listeners: k.Listeners, Inbound: k.Inbound, Patches: k.Patches, Self: k.Self}
}

// Shared returns k without the parts that are the proxy's own: Inbound, Address and UnknownWorkload.
func (k Key) Shared() Key {
	return Key{Client: k.Client, Listeners: k.Listeners, Patches: k.Patches, Self: k.Self, Node: k.Node, Location: k.Location}
}

// KeepInbound returns k with Inbound, Patches and Self of last, and true, if the proxy's workload was known at last and
// is unknown now. Otherwise it returns k and false.
func (k Key) KeepInbound(last Key) (Key, bool) {
	if !k.UnknownWorkload || last.UnknownWorkload {
		return k, false
	}
	k.Inbound, k.Patches = last.Inbound, last.Patches
	k.Self = last.Self
	return k, true
}

// Location is where a proxy runs.
type Location struct {
	Locality registry.Locality
	Network  string
	Labels   frozen.List[Label] // the labels by which some endpoints are sorted
}

// Label is one label of a workload.
type Label struct{ Name, Value string }

// Client is the input of clusters, endpoints and routes.
type Client struct {
	Type node.Type
	// Proxyless is set for an application that uses xDS itself, through gRPC.
	Proxyless bool
	Namespace string
	Sidecar   *kinds.Object // Sidecar that applies; nil for routers
	Cluster   string        // cluster key; empty for the server's own
	Network   string
	// NetworkView lists the networks that the proxy requests, sorted. Empty means all.
	NetworkView frozen.List[string]
	// Domain is <ns>.svc.<suffix>. It decides which short names a virtual host has.
	Domain       string
	Capabilities node.Capabilities
	// Settings are the proxy's own mesh settings, in the form that mesh.Config.With takes.
	Settings    string
	Files       node.Files // the proxy's own files for mutual TLS
	IPv4, IPv6  bool
	AutoAddress bool // the proxy resolves names to auto-allocated addresses
	// Gateways are the Gateways that select a router, in order of precedence.
	Gateways frozen.List[*kinds.Object]
	Rules    frozen.List[*kinds.Object] // DestinationRules whose workload selector matches
	// Node is empty unless some cluster depends on it.
	Node string
	// Location is zero unless some cluster depends on it.
	Location        Location
	ExcludedMatches frozen.List[ExcludedMatches] // matches on source labels that do not apply
	// Targets are the ports of the services that a router's workload serves.
	Targets frozen.List[Target]
	// HTTP3 are the UDP ports among Targets on which a router may accept HTTP/3.
	HTTP3      frozen.List[uint32]
	Selections feature.Selections
}

// ExcludedMatches are the matches of one VirtualService that do not apply to a proxy because of its labels, in the
// form that scope.ExcludedMatches returns.
type ExcludedMatches struct {
	Object  *kinds.Object
	Matches string
}

// ExcludedMatchesOf returns the matches of a VirtualService that do not apply, or "" if all do.
func (c *Client) ExcludedMatchesOf(o *kinds.Object) string {
	for f := range c.ExcludedMatches.All {
		if f.Object == o {
			return f.Matches
		}
	}
	return ""
}

// Outbound is the input of outbound listeners besides the Client.
type Outbound struct {
	Interception  node.Interception
	HTTPProxyPort uint32
	Tuning        node.Tuning
	Unprivileged  bool
	Sockets       Sockets
	Tags          feature.Tags
	Selections    feature.Selections
}

// Sockets are the ports on which a proxy listens apart from its xDS listeners. Unused entries are 0.
type Sockets struct {
	Bootstrap [4]uint32 // listeners of the proxy's bootstrap, on all addresses
	Others    [3]uint32 // sockets of its agent and of its admin API
}

// Take reports whether Envoy would reject a listener on a port of all addresses: a bootstrap listener has the port,
// or the listener binds its port and another socket of the proxy has it.
func (s Sockets) Take(port uint32, binds bool) bool {
	return port != 0 && (slices.Contains(s.Bootstrap[:], port) || binds && slices.Contains(s.Others[:], port))
}

// socketsOf returns the ports that a proxy names in its metadata.
func socketsOf(p *node.Proxy) Sockets {
	s := Sockets{[4]uint32{p.StatusPort, p.MetricsPort, p.SecurePorts[0], p.SecurePorts[1]}, [3]uint32{p.AgentPort, p.AdminPort}}
	if p.DNSCapture {
		s.Others[2] = dnsPort
	}
	return s
}

// Inbound is the input of inbound clusters and listeners. Routers have the zero Inbound.
type Inbound struct {
	Sidecar      bool
	Interception node.Interception
	Capabilities node.Capabilities
	// Settings are the proxy's own mesh settings, in the form that mesh.Config.With takes.
	Settings   string
	Tuning     node.Tuning
	IPv4, IPv6 bool
	Namespace  string
	Tags       feature.Tags
	Targets    frozen.List[Target]
	// Ingress is a Sidecar whose ingress listeners replace the services' filter chains.
	Ingress *kinds.Object
	Sockets Sockets // zero without Ingress
	// Address is the proxy's address. It is empty unless an ingress listener depends on it.
	Address    string
	Selections feature.Selections
}

// Patches is the input of patches, which change or add resources. Resources that no patch changes are shared with
// proxies that have no patches. The zero Patches has none.
type Patches struct {
	Router     bool
	Selections feature.Selections
}

// Target is a service port that the proxy's workload serves.
type Target struct {
	Service    *registry.Service
	Port       uint32 // port of the service
	TargetPort uint32 // port of the workload
	UDP        bool
	Rules      frozen.List[*kinds.Object] // DestinationRules that apply in the service's own namespace
}

// dnsPort is the port on which an agent answers the DNS queries of its application.
const dnsPort = 15053

// Resolve returns the inputs of a proxy's configuration.
func Resolve(x *scope.Index, p *node.Proxy, features []*feature.Feature) Inputs {
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
	tuning := p.Tuning.With(x.Tuning)
	k := Inputs{
		Client: Client{
			Type: p.Type, Proxyless: p.Generator == node.GRPC, Namespace: p.Namespace, Cluster: x.ClusterKey(p.Cluster), Network: p.Network,
			NetworkView: frozen.ListOf(slices.Compact(slices.Sorted(slices.Values(p.NetworkView)))...), Domain: p.Domain,
			Capabilities: p.Capabilities, Settings: p.Settings, Files: p.ClientFiles, IPv4: v4 || !v6, IPv6: v6,
			AutoAddress: p.DNSCapture && p.DNSAutoAllocate,
		},
		Outbound: Outbound{
			Interception: p.Interception, HTTPProxyPort: p.HTTPProxyPort, Tuning: tuning, Unprivileged: p.Unprivileged, Tags: newTags(x, p, w),
		},
		UnknownWorkload: w.Kind == nil,
	}
	k.Outbound.Sockets = socketsOf(p)
	if x.NeedsNode() {
		k.Node = cmp.Or(w.NodeName, p.NodeName)
	}
	if assignments, clusters, byNode := x.NeedsLocality(); assignments {
		k.Location = Location{cmp.Or(w.Locality, nodeLocality(p)), cmp.Or(w.Network, p.Network), labelsOf(w, x.PriorityLabels(w.Labels))}
		if clusters {
			k.Client.Location = k.Location
		}
		if byNode {
			k.Client.Node = k.Node
		}
	}
	if len(addresses) > 0 {
		k.Address = addresses[0]
	}
	labels := labelsAt(p, w)
	k.Client.Rules = selectedRules(x, p.Namespace, labels)
	k.Client.ExcludedMatches = excludedMatches(x, labels)
	targets := findTargets(x, w, addresses)
	if p.SelfDiscovery && !k.Client.Proxyless {
		k.Self = selfOf(w, targets, labels.Place.Locality.Region)
	}
	selected := feature.Select(features, x, p.Namespace, feature.Workload{
		Type: p.Type, Namespace: p.Namespace, Labels: labels, Services: policyServices(x, w, targets), Version: p.Version,
		Metadata: p.MetadataText,
	})
	if patches := selected(feature.PatchPart); !patches.Empty() && !k.Client.Proxyless {
		k.Patches = Patches{p.Type == node.Router, patches}
	}
	k.Client.Selections = selected(feature.ClientPart)
	if p.Type == node.Router {
		k.Outbound.Selections = selected(feature.ListenersPart | feature.InboundPart)
		k.Client.Gateways = selectedGateways(x, w.Namespace, labels)
		k.Client.Targets = targets
		if p.Unprivileged {
			k.Client.Targets = withoutPrivilegedUDP(targets)
		}
		if x.HTTP3 {
			k.Client.HTTP3 = http3Ports(k.Client.Targets, k.Outbound.Selections, k.Patches.Selections)
		}
		return k
	}
	k.Outbound.Selections = selected(feature.ListenersPart)
	k.Client.Sidecar = scope.SidecarFor(x, p.Namespace, labels)
	k.Inbound = Inbound{
		Sidecar: true, Interception: p.Interception, Capabilities: p.Capabilities, Settings: p.Settings, Tuning: tuning,
		IPv4: k.Client.IPv4, IPv6: v6, Namespace: p.Namespace,
		Tags: k.Outbound.Tags, Targets: targets, Selections: selected(feature.InboundPart),
	}
	if s := k.Client.Sidecar; s != nil {
		if spec := s.Spec.(*networkingv1.Sidecar); len(spec.Ingress) > 0 || spec.InboundConnectionPool != nil {
			k.Inbound.Ingress, k.Inbound.Sockets = s, k.Outbound.Sockets
			if slices.ContainsFunc(spec.Ingress, namesAddress) {
				k.Inbound.Address = k.Address
			}
		}
	}
	return k
}

// labelsOf returns the labels of a workload with the given names.
func labelsOf(w *registry.Workload, names []string) frozen.List[Label] {
	var list []Label
	for _, n := range names {
		if v, ok := w.Labels[n]; ok {
			list = append(list, Label{n, v})
		}
	}
	return frozen.ListOf(list...)
}

// namesAddress reports whether an ingress listener binds or forwards to the proxy's own address.
func namesAddress(l *networkingv1alpha3.IstioIngressListener) bool {
	return l.Bind == "" || strings.HasPrefix(l.DefaultEndpoint, "0.0.0.0:") || strings.HasPrefix(l.DefaultEndpoint, "[::]:")
}

// workload returns the proxy's workload. If it is unknown, it makes one from the proxy's metadata.
func workload(x *scope.Index, p *node.Proxy) *registry.Workload {
	if w := Workload(x.Snapshot, p); w != nil {
		return w
	}
	return &registry.Workload{
		WorkloadKey: registry.WorkloadKey{Namespace: p.Namespace, Name: p.Name}, Labels: p.Labels, Addresses: p.IPs, Owner: p.Workload,
		Locality: nodeLocality(p), Cluster: p.Cluster, Network: p.Network,
	}
}

// Workload returns the proxy's workload, or nil if it is unknown. In this order it tries the Pod with the proxy's
// name in the proxy's cluster, the WorkloadEntry with that name there, the WorkloadEntry with that name in the
// server's own cluster, where machines of remote clusters may be registered, and the workload that owns the proxy's
// address in its cluster.
func Workload(x *snapshot.Snapshot, p *node.Proxy) *registry.Workload {
	cluster := x.ClusterKey(p.Cluster)
	for _, k := range []registry.WorkloadKey{{Kind: kinds.Pod, Cluster: cluster}, {Kind: kinds.WorkloadEntry, Cluster: cluster},
		{Kind: kinds.WorkloadEntry}} {
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

// Account returns the service account of the proxy's Pod. It is empty if the proxy's workload is unknown or not a
// Pod.
func Account(x *snapshot.Snapshot, p *node.Proxy) string {
	if w := Workload(x, p); w != nil && w.Kind == kinds.Pod {
		return w.ServiceAccount
	}
	return ""
}

// RunsAs reports whether the proxy's cluster has a Pod or a WorkloadEntry with the proxy's name that runs as a
// service account. It does not match by address, because every caller of a service knows its addresses.
func RunsAs(x *snapshot.Snapshot, p *node.Proxy, account string) bool {
	k := registry.WorkloadKey{Kind: kinds.Pod, Cluster: x.ClusterKey(p.Cluster), Namespace: p.Namespace, Name: p.Name}
	w := x.Workload(k)
	if w == nil {
		k.Kind = kinds.WorkloadEntry
		w = x.Workload(k)
	}
	return w != nil && account != "" && w.ServiceAccount == account
}

// labelsAt returns the labels by which selectors match a proxy. The workload's location takes precedence over the
// proxy's metadata.
func labelsAt(p *node.Proxy, w *registry.Workload) registry.Labels {
	return registry.Labels{Own: w.Labels, Place: registry.Place{
		Locality: cmp.Or(w.Locality, nodeLocality(p)), Network: cmp.Or(w.Network, p.Network), Cluster: cmp.Or(w.Cluster, p.Cluster),
		Node: cmp.Or(w.NodeName, p.NodeName),
	}}
}

func nodeLocality(p *node.Proxy) registry.Locality {
	return registry.Locality{Region: p.Locality[0], Zone: p.Locality[1], SubZone: p.Locality[2]}
}

func newTags(x *scope.Index, p *node.Proxy, w *registry.Workload) feature.Tags {
	service := ""
	if x.TracesServices() {
		service = p.Service
	}
	return feature.Tags{
		Service:           service,
		CanonicalService:  registry.CanonicalName(w.Labels, cmp.Or(p.Workload, w.Owner, "unknown")),
		CanonicalRevision: cmp.Or(registry.CanonicalRevision(w.Labels), "latest"),
		Cluster:           p.Cluster, Mesh: p.MeshID, Namespace: p.Namespace, Tracing: p.Tracing,
	}
}

// findTargets returns the service ports that a workload serves, with the version of each service for the workload's
// cluster. A workload serves a service if the selector matches its labels. It serves a service without a selector if
// one of its addresses is an endpoint.
func findTargets(x *scope.Index, w *registry.Workload, addresses []string) frozen.List[Target] {
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
					found = append(found, Target{Service: s, Port: s.Ports[i].Number, TargetPort: t, UDP: s.Ports[i].Protocol == protocols.UDP})
				}
			}
		case s.Selector == nil || w.Kind == nil:
			var ports map[string]*registry.Port // by name
			for _, e := range x.Endpoints(s.Key()).List {
				if slices.Contains(addresses, e.Address) && (x.ClusterKey(e.Cluster) == cluster || s.Provider == registry.External && !e.HealthKnown) {
					if ports == nil {
						ports = portsByName(s)
					}
					if p := ports[e.ServicePort]; p != nil {
						found = append(found, Target{Service: s, Port: p.Number, TargetPort: e.Port, UDP: p.Protocol == protocols.UDP})
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
		found[i].Rules = x.DestinationRules(found[i].Service.Namespace, found[i].Service, frozen.List[*kinds.Object]{})
	}
	return frozen.ListOf(found...)
}

// withoutPrivilegedUDP returns targets without UDP ports below 1024, which a proxy without privileges cannot bind.
func withoutPrivilegedUDP(targets frozen.List[Target]) frozen.List[Target] {
	list := slices.Collect(targets.All)
	return frozen.ListOf(slices.DeleteFunc(list, func(t Target) bool { return t.UDP && t.TargetPort < 1024 })...)
}

// http3Ports returns the UDP ports of a router's workload on which no selected object adds connection filters,
// sorted.
func http3Ports(targets frozen.List[Target], selected ...feature.Selections) frozen.List[uint32] {
	var ports []uint32
	for t := range targets.All {
		if t.UDP {
			ports = append(ports, t.TargetPort)
		}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	if len(ports) > 0 {
		for _, kind := range http3.FilterKinds() {
			for _, o := range feature.ObjectsOf(kind, selected...) {
				ports = slices.DeleteFunc(ports, func(port uint32) bool { return http3.Filters(o, port) != "" })
			}
		}
	}
	return frozen.ListOf(ports...)
}

// servicesOf returns the services of targets without repetition.
func servicesOf(targets frozen.List[Target]) []*registry.Service {
	var list []*registry.Service
	for t := range targets.All {
		if len(list) == 0 || list[len(list)-1] != t.Service {
			list = append(list, t.Service)
		}
	}
	return list
}

// policyServices returns the services whose policies apply to a workload. For an unknown workload these include the
// services that select the labels in its proxy's metadata, so that their policies are in force before the workload is
// known.
func policyServices(x *scope.Index, w *registry.Workload, targets frozen.List[Target]) []*registry.Service {
	list := servicesOf(targets)
	if w.Kind != nil {
		return list
	}
	cluster := x.ClusterKey(w.Cluster)
	for s := range x.CandidateServices(w.Namespace, w.Labels, nil, true) {
		s = s.ClusterVersion(cluster)
		if s != nil && s.Namespace == w.Namespace && len(s.Selector) > 0 && kinds.Selects(s.Selector, w.Labels) && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// portsByName returns a service's ports by name. The first of several ports with one name is used.
func portsByName(s *registry.Service) map[string]*registry.Port {
	by := make(map[string]*registry.Port, len(s.Ports))
	for i := range slices.Backward(s.Ports) {
		by[s.Ports[i].Name] = &s.Ports[i]
	}
	return by
}

func targetPort(p *registry.Port, w *registry.Workload) uint32 {
	if n := w.Ports[p.Name]; n != 0 && w.Kind == kinds.WorkloadEntry {
		return n // a WorkloadEntry has port numbers of its own
	}
	if p.TargetPort == "" {
		return p.Number
	}
	if n, err := strconv.ParseUint(p.TargetPort, 10, 16); err == nil {
		return uint32(n)
	}
	return w.Ports[p.TargetPort]
}

func excludedMatches(x *scope.Index, labels registry.Labels) frozen.List[ExcludedMatches] {
	var list []ExcludedMatches
	for v := range x.WithSourceLabels() {
		if m := scope.ExcludedMatches(v.Spec, labels); m != "" {
			list = append(list, ExcludedMatches{v.Object, m})
		}
	}
	return frozen.ListOf(list...)
}

func selectedGateways(x *scope.Index, namespace string, labels registry.Labels) frozen.List[*kinds.Object] {
	var found []*kinds.Object
	for _, o := range x.AllObjects(kinds.Gateway) {
		if !kinds.GatewayReaches(o, namespace, x.ScopedGateways) {
			continue
		}
		if e, ok := o.Extra.(*kinds.GatewayExtra); ok && e.Workloads != nil {
			if e.Selects(namespace, labels.Own) {
				found = append(found, o)
			}
			continue
		}
		if sel := o.Spec.(*networkingv1.Gateway).Selector; labels.Match(sel) {
			found = append(found, o)
		}
	}
	return frozen.ListOf(found...)
}

// selectedRules returns the DestinationRules of a namespace whose workload selector matches.
func selectedRules(x *scope.Index, namespace string, labels registry.Labels) frozen.List[*kinds.Object] {
	var found []*kinds.Object
	for o := range x.DestinationRulesWithSelector(namespace) {
		if labels.Match(o.Spec.(*networkingv1.DestinationRule).GetWorkloadSelector().GetMatchLabels()) {
			found = append(found, o)
		}
	}
	return frozen.ListOf(found...)
}
