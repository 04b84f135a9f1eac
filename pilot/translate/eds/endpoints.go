package eds

import (
	"cmp"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// Assignments makes assignments. Safe for concurrent use.
type Assignments struct {
	builder
	hooks       *hooks.Hooks
	cache       *engine.Cache
	assignments *envoy.MemoTable[assignmentKey]
	failed      envoy.NameInterner // interned lists of names whose assignments could not be made
	selfNames   *envoy.Names       // names.SelfCluster alone
}

// New returns Assignments with their resources in a memo and their Sets in a cache.
func New(m *envoy.Memo, h *hooks.Hooks, c *engine.Cache) *Assignments {
	b := builder{h}
	var interner envoy.NameInterner
	return &Assignments{
		builder: b, hooks: h, cache: c, assignments: envoy.NewMemoTable(m, b.buildAssignment),
		selfNames: interner.Intern([]string{names.SelfCluster}),
	}
}

// builder builds assignments. Its methods are pure functions of their keys.
type builder struct{ *hooks.Hooks }

// assignmentKey is the whole input of a ClusterLoadAssignment. A name without a cluster has no service.
type assignmentKey struct {
	name      string
	endpoints *snapshot.Endpoints
	service   *registry.Service
	port      string // name of the service port
	rule      traffic.Rule
	subset    string
	tls       feature.EndpointTLS
	policies  frozen.List[EndpointPolicies]
	sni       bool
	node      string // node of the proxy, for a service that is called only on the client's own node
	cluster   string // cluster of the proxy, for a service that is called only in the client's own cluster or node
	from      string // cluster of the proxy, if some endpoints are for proxies of their own cluster only
	placed    bool   // whether another client may have another assignment
	ready     bool   // whether unhealthy endpoints are left out
	topology  topology
	paths     frozen.List[networkPath]
	self      cohort.Self // zero unless only replicas of the proxy are included
}

// EndpointPolicies is an endpoint with the objects of the transport that apply to its workload.
type EndpointPolicies struct {
	endpoint *registry.Endpoint
	policies feature.Selection
}

// located reports whether the assignment depends on the location of the client.
func (k assignmentKey) located() bool { return k.node != "" || k.placed }

// keyOf returns the key of an assignment as a cohort sees it. It has no service if there is no such cluster.
func (m *Assignments) keyOf(v *view.View, c cohort.Inputs, name string) assignmentKey {
	k := assignmentKey{name: name}
	n, ok := names.ParseCluster(name)
	if !ok || n.Direction != names.Outbound {
		return k
	}
	s := v.ScopeOf(c.Client.Namespace, c.Client.Sidecar).ServiceByHost(n.Host)
	if s == nil || s.Port(n.Port) == nil {
		return k
	}
	rule, ok := v.MergedRules(c.Client, s).Rule(n.Subset)
	if !ok {
		return k
	}
	k.rule, k.subset, k.sni = rule, n.Subset, n.SNIDNAT
	k.reach(m, v, c.Client, s, s.Port(n.Port).Name)
	choice := m.hooks.Choice(v.Mesh(), s, rule.Policy(n.Port))
	k.ready, k.tls = choice.ReadyOnly, choice.TLS
	if s.NodeLocal {
		k.node = cmp.Or(c.Node, "\x00") // matches no endpoint if the proxy has no node
	}
	if placed(choice) {
		k.placed, k.topology = true, topologyOf(choice, place{c.Node, c.Location}, cmp.Or(c.Client.Cluster, v.Cluster()))
	}
	return k
}

// reach sets the service, and which of its endpoints at a port a client reaches, by which paths.
func (k *assignmentKey) reach(m *Assignments, v *view.View, c cohort.Client, s *registry.Service, port string) {
	k.service, k.endpoints, k.port = s, v.Endpoints(s.Key()), port
	k.policies, k.paths = Policies(v, m.hooks, k.endpoints.ByPort(port)), networkPaths(v, c, k.endpoints.NetworkClusters)
	cluster := cmp.Or(c.Cluster, v.Cluster())
	if s.NodeLocal || v.ClusterLocal(s.Host) {
		k.cluster = cluster
	}
	if k.endpoints.Confined {
		k.from = cluster
	}
}

// Affected returns which assignments of a list may differ after a change.
func Affected(d *scope.Dirty, list *envoy.Names) (affected []string) {
	for _, hosts := range [][]string{d.Hosts, d.Endpoints} {
		for _, h := range hosts {
			affected = slices.AppendSeq(affected, list.OfHost(h))
		}
	}
	return affected
}

// Get returns the assignments of a list of names. Assignments that depend on the location of the proxy are in
// Union.Own, the half that is not shared, and so is the assignment of the proxy's own workload. A name without a
// cluster is in neither half.
func (m *Assignments) Get(v *view.View, c cohort.Key, list *envoy.Names) (envoy.Union, error) {
	k := engine.Key{Type: envoy.EndpointType, Client: c.Client.Weak()}
	shared := m.version(v, &c, k, list, false)
	u, err := envoy.Union{Shared: shared.Set, Empty: list, Failed: shared.Failed()}, shared.Err()
	failures := func(of *engine.Version) {
		err = errors.Join(err, of.Err())
		if failed := of.Failed(); u.Failed == nil {
			u.Failed = failed
		} else if failed != nil {
			u.Failed = m.failed.Edited(u.Failed, nil, failed)
		}
	}
	at := place{c.Node, c.Location}
	if shared.Elsewhere() {
		k.Part = at
		own := m.version(v, &c, k, list, true)
		u.Own = own.Set
		failures(own)
	}
	if by := c.Self.Value(); by != (cohort.Self{}) && list.Has(names.SelfCluster) {
		self := m.self(v, c.Client, by)
		failures(self)
		if self.Set.Len() > 0 {
			k.Part = withSelfPart{at, by}
			u.Own = engine.Extend(m.cache, k, v.Revision, list, u.Own, slices.Collect(self.Set.All))
		}
	}
	return u, err
}

// version returns the assignments that depend on the proxy's location, or the others.
func (m *Assignments) version(v *view.View, c *cohort.Key, k engine.Key, list *envoy.Names, located bool) *engine.Version {
	if last := engine.CachedByName(m.cache, k, v.Revision, list); last != nil {
		return last
	}
	of := *c // so that only this copy is on the heap
	return engine.GetByName(m.cache, k, v.Revision, list, engine.ByName{
		Affected: Affected,
		Build: func(name string) *envoy.Resource {
			if k := m.keyOf(v, of.Inputs(), name); k.service != nil && k.located() == located {
				return m.assignments.Get(k)
			}
			return nil
		},
		Elsewhere: func(name string) bool { return !located && m.keyOf(v, of.Inputs(), name).located() },
	})
}

// place is the location of a proxy.
type place struct {
	node     string
	location cohort.Location
}

// Policies returns the policies of the endpoints that accept mTLS. The list is empty without any policy, as in most
// meshes.
func Policies(v *view.View, h *hooks.Hooks, endpoints []*registry.Endpoint) frozen.List[EndpointPolicies] {
	if !h.HasPolicies(v) {
		return frozen.List[EndpointPolicies]{}
	}
	var list []EndpointPolicies
	in := map[string]func(feature.Workload) feature.Selection{}
	for _, e := range endpoints {
		if e.TLSMode != "" {
			if in[e.Namespace] == nil {
				in[e.Namespace] = h.PolicySelector(v, e.Namespace)
			}
			if p := in[e.Namespace](feature.Workload{Labels: e.AllLabels()}); !p.Empty() {
				list = append(list, EndpointPolicies{e, p})
			}
		}
	}
	return frozen.ListOf(list...)
}

func (b builder) buildAssignment(k assignmentKey) *envoy.Resource {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: k.name}
	a.Endpoints = k.localities(b, slices.Values(k.endpoints.ByPort(k.port)), sendable)
	return envoy.NewResource(k.name, a)
}

// InlineCluster is the whole input for the endpoints of a cluster that Envoy resolves itself.
type InlineCluster struct {
	Name      string
	Service   *registry.Service
	Rule      traffic.Rule
	Port      uint32
	Subset    string
	SNI       bool
	Endpoints frozen.List[*registry.Endpoint]
	Policies  frozen.List[EndpointPolicies]
	Place     Place
	Choice    feature.Choice
}

// Place is the part of a client's location that the endpoints of a cluster depend on. It is comparable. With the zero
// Place the location does not matter.
type Place struct{ topology topology }

// PlaceOf returns the place of a cohort for the endpoints of a service that are part of its clusters.
func PlaceOf(v *view.View, c cohort.Client, by feature.Choice) Place {
	if placed(by) {
		return Place{topologyOf(by, place{c.Node, c.Location}, cmp.Or(c.Cluster, v.Cluster()))}
	}
	return Place{}
}

// Inline makes the assignment that is part of a cluster.
func Inline(h *hooks.Hooks, c InlineCluster) *endpointv3.ClusterLoadAssignment {
	k := assignmentKey{
		service: c.Service, rule: c.Rule, port: c.Service.Port(c.Port).Name, subset: c.Subset, policies: c.Policies, sni: c.SNI,
		topology: c.Place.topology, ready: c.Choice.ReadyOnly, tls: c.Choice.TLS,
	}
	endpoints := k.localities(builder{h}, c.Endpoints.All, func(address string) bool { return address != "" })
	return &endpointv3.ClusterLoadAssignment{ClusterName: c.Name, Endpoints: endpoints}
}

// localities groups the endpoints of the port by locality. accept reports whether the cluster can have an address. A
// locality whose endpoints the client may not call stays, empty.
func (k assignmentKey) localities(b builder, endpoints iter.Seq[*registry.Endpoint],
	accept func(address string) bool) []*endpointv3.LocalityLbEndpoints {
	policies := map[*registry.Endpoint]feature.Selection{}
	for p := range k.policies.All {
		policies[p.endpoint] = p.policies
	}
	labels := k.rule.Labels()
	groups, sums := map[priorityGroup]*groupEndpoints{}, map[int]weightSum{}
	var order []priorityGroup
	horizon := newSplitHorizon(k.paths)
	for e := range endpoints {
		if !e.AllLabels().Match(labels) || !k.self.Includes(e) {
			continue
		}
		gateways, crosses := horizon.path(e)
		if crosses && len(gateways) == 0 || !crosses && !accept(e.Address) {
			continue
		}
		if k.node != "" && e.NodeName != k.node || k.cluster != "" && e.Cluster != k.cluster || !e.CallableFrom(k.from) {
			continue
		}
		if e.Health == registry.Draining && !k.service.SendDraining || e.Health == registry.Unhealthy && k.ready {
			continue
		}
		secure := e.TLSMode != ""
		if k.tls == feature.TLSByWorkload {
			secure = secure && b.Mode(policies[e], e.Port) != feature.Disable
		} else {
			secure = secure && k.tls == feature.TLSOfMesh
		}
		at := priorityGroup{e.Locality, k.topology.distance(e, crosses)}
		g := groups[at]
		if g == nil {
			g = &groupEndpoints{}
			groups[at] = g
			order = append(order, at)
		}
		horizon.add(g, e, gateways, crosses, secure, k.sni)
	}
	for at, g := range groups {
		sums[at.distance] = sums[at.distance].with(g)
	}
	if k.topology.prioritizes() {
		order = slices.DeleteFunc(order, func(at priorityGroup) bool { return groups[at].empty() }) // an empty group has no priority
	}
	slices.SortFunc(order, compareGroups)
	priority := priorities(order)
	var out []*endpointv3.LocalityLbEndpoints
	for _, at := range order {
		l := &endpointv3.LocalityLbEndpoints{Locality: locality(at.Locality), Priority: priority[at.distance]}
		groups[at].write(l, sums[at.distance])
		out = append(out, l)
	}
	if d := k.topology.share; d != nil {
		distribute(out, d)
	}
	return out
}

// distribute gives each locality its share of requests by patterns. A locality without a share loses its endpoints.
func distribute(list []*endpointv3.LocalityLbEndpoints, d *networkingv1alpha3.LocalityLoadBalancerSetting_Distribute) {
	var all []registry.Locality
	weights := map[registry.Locality]uint32{}
	key := func(l *endpointv3.LocalityLbEndpoints) registry.Locality {
		return registry.Locality{Region: l.Locality.Region, Zone: l.Locality.Zone, SubZone: l.Locality.SubZone}
	}
	for _, l := range list {
		all = append(all, key(l))
		weights[key(l)] = l.GetLoadBalancingWeight().GetValue()
	}
	share := shares(d, all, func(l registry.Locality) uint32 { return weights[l] })
	for _, l := range list {
		if w := share[key(l)]; w > 0 { // the mesh's setting may have weights of 0, which Envoy rejects
			l.LoadBalancingWeight = envoy.UInt32(w)
		} else {
			l.LbEndpoints = nil
		}
	}
}

// sendable reports whether EDS may contain an address: a host name is not allowed.
func sendable(address string) bool {
	if strings.HasPrefix(address, "unix://") {
		return true
	}
	_, err := netip.ParseAddr(address)
	return err == nil
}

// tlsMatch is the metadata key by which Envoy chooses among a cluster's transport sockets.
const tlsMatch = "envoy.transport_socket_match"

// TLSModeIstio returns the metadata of endpoints that accept the mTLS of the mesh.
func TLSModeIstio() *structpb.Struct {
	return envoy.Fields(map[string]*structpb.Value{"tlsMode": envoy.Text("istio")})
}

func workloadMetadata(name string) *structpb.Struct {
	return envoy.Fields(map[string]*structpb.Value{"workload": envoy.Text(name)})
}

// telemetryName returns the name of an endpoint's workload in telemetry.
func telemetryName(e *registry.Endpoint) string {
	return e.Workload + ";" + e.Namespace + ";" + e.CanonicalName + ";" + e.CanonicalRevision + ";" + e.Cluster
}

func locality(l registry.Locality) *corev3.Locality {
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}
