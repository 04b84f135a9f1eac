package translate

import (
	"cmp"
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
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mtls"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// assignmentKey is all that a ClusterLoadAssignment depends on. Without a service it is the empty assignment.
type assignmentKey struct {
	name      string
	endpoints *snapshot.Endpoints
	service   *registry.Service
	port      string // the service port's name
	rules     destinationrule.Rules
	subset    string
	number    uint32
	peers     frozen.List[peer]
	sni       bool
	node      string // of a service whose endpoints are called from their own node alone: the proxy's
	cluster   string // of a service whose endpoints are called from their own cluster, or node, alone: the ID of the proxy's
	near      nearness
}

// peer is the policies in force for the workload at one address.
type peer struct {
	address  string
	policies frozen.List[*kinds.Object]
}

// assignment makes the endpoints of one cluster as a cohort sees them: empty ones where there is no such cluster.
func (v *view) assignment(c cohort.Proxy, name string) (r *envoy.Resource, exists bool) {
	k := assignmentKey{name: name}
	n, ok := names.ParseCluster(name)
	if !ok || n.Direction != names.Outbound {
		return v.t.assignments.Get(k), false
	}
	s := v.index.Of(c.Scope.Namespace, c.Scope.Sidecar).ServiceByHost(n.Host)
	if s == nil || s.Port(n.Port) == nil {
		return v.t.assignments.Get(k), false
	}
	rules := v.rules(c.Scope, s)
	if n.Subset != "" && destinationrule.Subset(rules, n.Subset) == nil {
		return v.t.assignments.Get(k), false
	}
	k.service, k.endpoints, k.rules = s, v.Endpoints(s.Key()), rules
	k.port, k.number, k.subset, k.sni = s.Port(n.Port).Name, n.Port, n.Subset, n.SNIDNAT
	k.peers = v.peers(k.endpoints)
	if s.NodeLocal {
		k.node = cmp.Or(c.Node, "\x00") // a proxy of no node has none
	}
	cluster := cmp.Or(c.Scope.Cluster, v.Cluster)
	if s.NodeLocal || v.index.ClusterLocal(s.Host) {
		k.cluster = cluster
	}
	if distributes(s, destinationrule.Resolve(rules, n.Port, n.Subset)) {
		k.near = nearTo(s.TrafficDist, c, cluster)
	}
	return v.t.assignments.Get(k), true
}

// peers finds the policies for those endpoints that take mTLS. Without any PeerAuthentication, as in most meshes, the list is empty.
func (v *view) peers(eps *snapshot.Endpoints) frozen.List[peer] {
	if !v.hasPeerAuthentication {
		return frozen.List[peer]{}
	}
	var list []peer
	for _, e := range eps.List {
		if e.TLSMode != "" {
			if p := cohort.PeerAuthentications(v.index, e.Namespace, e.Labels); !p.Empty() {
				list = append(list, peer{e.Address, p})
			}
		}
	}
	return frozen.Of(list...)
}

func buildAssignment(k assignmentKey) *envoy.Resource {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: k.name}
	if k.service == nil {
		return envoy.NewResource(k.name, a)
	}
	policies := map[string]frozen.List[*kinds.Object]{}
	for p := range k.peers.All {
		policies[p.address] = p.policies
	}
	var labels map[string]string
	if s := destinationrule.Subset(k.rules, k.subset); s != nil {
		labels = s.Labels
	}
	tls := destinationrule.Resolve(k.rules, k.number, k.subset).TLS
	groups := map[group]*endpointv3.LocalityLbEndpoints{}
	var order []group
	for _, e := range k.endpoints.List {
		if e.ServicePort != k.port || !scope.Selects(labels, e.Labels) || !sendable(e.Address) {
			continue
		}
		if k.node != "" && e.NodeName != k.node || k.cluster != "" && e.Cluster != k.cluster {
			continue
		}
		if e.Health == registry.Draining && !k.service.Unhealthy {
			continue
		}
		secure := mtls.Takes(e, policies[e.Address])
		if tls != nil {
			secure = e.TLSMode != "" && destinationrule.Mutual(tls)
		}
		if k.sni && !secure {
			continue
		}
		at := group{e.Locality, k.near.distance(e)}
		g := groups[at]
		if g == nil {
			g = &endpointv3.LocalityLbEndpoints{Locality: locality(e.Locality)}
			groups[at] = g
			order = append(order, at)
		}
		addEndpoint(g, e, secure)
	}
	slices.SortFunc(order, compareGroups)
	priority := priorities(order)
	for _, at := range order {
		groups[at].Priority = priority[at.distance]
		a.Endpoints = append(a.Endpoints, groups[at])
	}
	return envoy.NewResource(k.name, a)
}

// sendable tells an address that EDS may carry: never a name.
func sendable(address string) bool {
	if address != "" && address[0] == 'u' { // unix://
		return true
	}
	_, err := netip.ParseAddr(address)
	return err == nil
}

// addEndpoint adds one endpoint to its locality. tls: Envoy is to choose mTLS for it.
func addEndpoint(g *endpointv3.LocalityLbEndpoints, e *registry.Endpoint, tls bool) {
	weight := max(e.Weight, 1)
	m := map[string]*structpb.Struct{"istio": envoy.Fields(map[string]*structpb.Value{"workload": envoy.Text(telemetryName(e))})}
	if tls {
		m["envoy.transport_socket_match"] = envoy.Fields(map[string]*structpb.Value{"tlsMode": envoy.Text(e.TLSMode)})
	}
	lb := &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: envoy.Address(e.Address, e.Port)}},
		LoadBalancingWeight: envoy.UInt32(weight),
		Metadata:            &corev3.Metadata{FilterMetadata: m},
	}
	if e.HealthKnown {
		lb.HealthStatus = [...]corev3.HealthStatus{corev3.HealthStatus_HEALTHY, corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING}[e.Health]
	}
	g.LbEndpoints = append(g.LbEndpoints, lb)
	g.LoadBalancingWeight = envoy.UInt32(g.LoadBalancingWeight.GetValue() + weight)
}

// telemetryName is how telemetry names the workload behind an endpoint.
func telemetryName(e *registry.Endpoint) string {
	return e.Workload + ";" + e.Namespace + ";" + e.CanonicalName + ";" + e.CanonicalRevision + ";" + e.Cluster
}

func locality(l registry.Locality) *corev3.Locality {
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

// percent is of 100.
func percent(v float64) *typev3.Percent { return &typev3.Percent{Value: v} }
