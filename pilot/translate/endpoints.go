package translate

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// assignmentKey is all that a ClusterLoadAssignment depends on. Without a service the assignment is empty.
type assignmentKey struct {
	name      string
	endpoints *snapshot.Endpoints
	service   *registry.Service
	port      string // the service port's name
	rule      destinationrule.Rule
	subset    string
	number    uint32
	policies  frozen.List[endpointPolicies]
	sni       bool
	node      string // the proxy's, for a service whose endpoints are called from their own node alone
	cluster   string // the proxy's, for a service whose endpoints are called from their own cluster or node alone
	topology  topology
	paths     frozen.List[networkPath]
}

// endpointPolicies is an endpoint with the objects of the transport that apply to its workload.
type endpointPolicies struct {
	endpoint *registry.Endpoint
	policies feature.Selection
}

// located reports whether the assignment depends on where the client runs.
func (k assignmentKey) located() bool { return k.node != "" || k.topology != topology{} }

// assignmentKey returns the key of an assignment as a cohort sees it. Where there is no such cluster the key has no
// service.
func (v *view) assignmentKey(c cohort.Inputs, name string) assignmentKey {
	k := assignmentKey{name: name}
	n, ok := names.ParseCluster(name)
	if !ok || n.Direction != names.Outbound {
		return k
	}
	s := v.Index.ScopeOf(c.Scope.Namespace, c.Scope.Sidecar).ServiceByHost(n.Host)
	if s == nil || s.Port(n.Port) == nil {
		return k
	}
	rule, ok := v.rules(c.Scope, s).Rule(n.Subset)
	if !ok {
		return k
	}
	k.service, k.endpoints, k.rule = s, v.Endpoints(s.Key()), rule
	k.port, k.number, k.subset, k.sni = s.Port(n.Port).Name, n.Port, n.Subset, n.SNIDNAT
	k.policies, k.paths = v.endpointPolicies(k.endpoints.ByPort(k.port)), v.networkPaths(c.Scope, k.endpoints.NetworkClusters)
	if s.NodeLocal {
		k.node = cmp.Or(c.Node, "\x00") // no endpoint matches a proxy without a node
	}
	cluster := cmp.Or(c.Scope.Cluster, v.Cluster)
	if s.NodeLocal || v.Index.ClusterLocal(s.Host) {
		k.cluster = cluster
	}
	if prefersClose(s, rule.Policy(n.Port)) {
		k.topology = topologyOf(s.TrafficDist, c, cluster)
	}
	return k
}

// endpointPolicies returns the policies for those endpoints that take mTLS. The list is empty without any policy, as in
// most meshes.
func (v *view) endpointPolicies(endpoints []*registry.Endpoint) frozen.List[endpointPolicies] {
	if !v.hasTransportPolicies() {
		return frozen.List[endpointPolicies]{}
	}
	var list []endpointPolicies
	in := map[string]func(feature.Workload) feature.Selection{}
	for _, e := range endpoints {
		if e.TLSMode != "" {
			if in[e.Namespace] == nil {
				in[e.Namespace] = v.t.hooks.transport.Select(v.Index, e.Namespace)
			}
			if p := in[e.Namespace](feature.Workload{Labels: e.Labels}); !p.Empty() {
				list = append(list, endpointPolicies{e, p})
			}
		}
	}
	return frozen.ListOf(list...)
}

func (h *hooks) buildAssignment(k assignmentKey) *envoy.Resource {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: k.name}
	if k.service == nil {
		return envoy.NewResource(k.name, a)
	}
	a.Endpoints = k.localities(h, slices.Values(k.endpoints.ByPort(k.port)), sendable)
	return envoy.NewResource(k.name, a)
}

// localities groups the endpoints of the port by locality. accept reports whether the cluster can have an address. A
// locality whose endpoints the client may not call stays, empty.
func (k assignmentKey) localities(h *hooks, endpoints iter.Seq[*registry.Endpoint], accept func(address string) bool) []*endpointv3.LocalityLbEndpoints {
	policies := map[*registry.Endpoint]feature.Selection{}
	for p := range k.policies.All {
		policies[p.endpoint] = p.policies
	}
	labels, tls := k.rule.Labels(), k.rule.Policy(k.number).TLS
	groups, sums := map[priorityGroup]*groupEndpoints{}, map[int]weightSum{}
	var order []priorityGroup
	horizon := newSplitHorizon(k.paths)
	for e := range endpoints {
		if !kinds.Selects(labels, e.Labels) {
			continue
		}
		gateways, crosses := horizon.path(e)
		if crosses && len(gateways) == 0 || !crosses && !accept(e.Address) {
			continue
		}
		if k.node != "" && e.NodeName != k.node || k.cluster != "" && e.Cluster != k.cluster {
			continue
		}
		if e.Health == registry.Draining && !k.service.Unhealthy {
			continue
		}
		secure := e.TLSMode != "" && h.mode(policies[e], e.Port) != feature.Disable
		if tls != nil {
			secure = e.TLSMode != "" && destinationrule.IsIstioMutual(tls)
		}
		at := priorityGroup{e.Locality, k.topology.distance(e, crosses)}
		g := groups[at]
		if g == nil {
			g = &groupEndpoints{}
			groups[at] = g
			order = append(order, at)
		}
		switch {
		case !secure && (k.sni || crosses): // gateways route by the server name of mTLS
		case crosses && e.Health == registry.Healthy: // the gateway knows best about those that are not healthy
			g.addGateways(gateways, horizon.weight(e))
		case !crosses:
			g.direct = append(g.direct, directEndpoint{e, horizon.weight(e), secure})
		}
	}
	for at, g := range groups {
		sums[at.distance] = sums[at.distance].with(g)
	}
	if k.topology.enabled {
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
	return out
}

// sendable reports whether EDS may carry an address: a name is not allowed.
func sendable(address string) bool {
	if address != "" && address[0] == 'u' { // unix://
		return true
	}
	_, err := netip.ParseAddr(address)
	return err == nil
}

// tlsMatch is the metadata key by which Envoy chooses among a cluster's transport sockets.
const tlsMatch = "envoy.transport_socket_match"

func tlsModeIstio() *structpb.Struct {
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

// percent returns a share of 100.
func percent(v float64) *typev3.Percent { return &typev3.Percent{Value: v} }
