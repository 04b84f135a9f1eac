package translate

import (
	"net"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/registry"
)

// workloadPort is one port on which a sidecar takes calls for its workload: the target of services, or the port of a
// Sidecar's ingress listener.
type workloadPort struct {
	target   uint32
	port     uint32 // the service's, or the ingress listener's
	host     string // the host of requests in traces
	protocol registry.Protocol
	services frozen.List[*registry.Service] // that have this target, oldest first
	rule     destinationrule.Rule           // of the first service

	ingress   *kinds.Object // the Sidecar whose ingress it is, or nil
	bind      string        // for an ingress: the address in the name of its listener or chain
	bindsPort bool          // it has a listener of its own
	ownTLS    bool          // for an ingress: it has TLS settings
	endpoint  string        // for an ingress: where the workload listens, host:port or unix:///path; empty for the original destination
}

// workloadPorts returns the ports of an inbound cohort by target. Where several services have one target, the protocol
// is the oldest one's.
func (v *view) workloadPorts(c cohort.Inbound) []workloadPort {
	var served []workloadPort
	byTarget := map[uint32]int{} // in served, by target
	for t := range c.Targets.All {
		if t.TargetPort == uint32(v.Mesh.GetProxyInboundListenPort()) {
			continue
		}
		if i, ok := byTarget[t.TargetPort]; ok {
			if served[i].protocol != t.Service.Port(t.Port).Protocol {
				v.recordConflict(ConflictInbound, t.Service.Host+":"+strconv.FormatUint(uint64(t.Port), 10))
			}
			if !slices.Contains(slices.Collect(served[i].services.All), t.Service) {
				served[i].services = frozen.ListOf(append(slices.Collect(served[i].services.All), t.Service)...)
			}
			continue
		}
		byTarget[t.TargetPort] = len(served)
		served = append(served, workloadPort{
			target: t.TargetPort, port: t.Port, host: t.Service.Host, protocol: t.Service.Port(t.Port).Protocol,
			services: frozen.ListOf(t.Service), rule: destinationrule.ServiceRule(t.Rules),
			bind: wildcard(c.IPv4), endpoint: v.localEndpoint(c, t.TargetPort),
		})
	}
	if c.Ingress != nil {
		if spec := c.Ingress.Spec.(*networkingv1.Sidecar); len(spec.Ingress) > 0 {
			return ingressPorts(c, spec, served)
		}
	}
	if c.Interception == node.None {
		return nil // nothing is captured, and there is no listener to bind
	}
	slices.SortFunc(served, func(a, b workloadPort) int { return int(a.target) - int(b.target) })
	return served
}

// localEndpoint returns the address of a workload's port on loopback, if the mesh calls workloads there. It is empty
// for the original destination.
func (v *view) localEndpoint(c cohort.Inbound, port uint32) string {
	if v.Mesh.InboundPassthrough() {
		return ""
	}
	return net.JoinHostPort(loopback(c.IPv4), strconv.FormatUint(uint64(port), 10))
}

// ingressPorts returns the ports of a Sidecar's ingress listeners, which replace those of the services.
func ingressPorts(c cohort.Inbound, spec *networkingv1.Sidecar, served []workloadPort) []workloadPort {
	var ports []workloadPort
	for _, l := range spec.Ingress {
		n := l.GetPort().GetNumber()
		p := workloadPort{
			target: n, port: n, host: c.Ingress.Name + "." + c.Ingress.Namespace, protocol: portProtocol(l.GetPort().GetProtocol(), registry.TCP),
			ingress: c.Ingress, bind: l.Bind, bindsPort: l.CaptureMode == networkingv1alpha3.CaptureMode_NONE || c.Interception == node.None,
			endpoint: defaultEndpoint(l.DefaultEndpoint, c), ownTLS: l.Tls != nil,
		}
		if p.bind == "" {
			p.bind = c.Address
		}
		if i := slices.IndexFunc(served, func(s workloadPort) bool { return s.target == n }); i >= 0 {
			p.services, p.rule = served[i].services, served[i].rule
		}
		ports = append(ports, p)
	}
	return ports
}

// defaultEndpoint returns where an ingress listener sends to, if that is the workload's own: a unix socket, loopback,
// or (for 0.0.0.0) the proxy's address.
func defaultEndpoint(written string, c cohort.Inbound) string {
	if strings.HasPrefix(written, "unix://") {
		return written
	}
	host, port, err := net.SplitHostPort(written)
	if err != nil {
		return ""
	}
	switch host {
	case "127.0.0.1", "::1": // in the proxy's address family
		return net.JoinHostPort(loopback(c.IPv4), port)
	case "0.0.0.0", "::":
		return net.JoinHostPort(c.Address, port)
	}
	return ""
}

// inboundClusterKey is all that an inbound cluster depends on.
type inboundClusterKey struct {
	workloadPort
	mesh       *mesh.Config
	ipv4, ipv6 bool
	pool       *kinds.Object // a Sidecar whose inboundConnectionPool overrides the rules'
}

// inboundClusters makes the clusters that lead to the workload itself.
func (v *view) inboundClusters(c cohort.Inbound) []*envoy.Resource {
	if !c.Sidecar {
		return nil
	}
	out := []*envoy.Resource{v.t.fixedClusters.Get(fixedClusterKey{names.InboundPassthroughCluster, v.Mesh, c.Capabilities, c.IPv4, c.IPv6})}
	for _, p := range v.workloadPorts(c) {
		out = append(out, v.t.inboundClusters.Get(inboundClusterKey{p, v.Mesh, c.IPv4, c.IPv6, c.Ingress}))
	}
	return out
}

// maxCleanupInterval is the longest cleanup interval that Envoy takes, in seconds. With it the hosts of connections to
// the workload are kept for as long as the connections live.
const maxCleanupInterval = 9223372035

func buildInboundCluster(k inboundClusterKey) *envoy.Resource {
	name := names.Cluster(names.Inbound, k.target, "", "")
	c := &clusterv3.Cluster{
		Name:                 name,
		AltStatName:          name + ";",
		ConnectTimeout:       k.mesh.GetConnectTimeout(),
		CommonLbConfig:       &clusterv3.Cluster_CommonLbConfig{},
		CircuitBreakers:      unlimited(),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED,
		CleanupInterval:      &durationpb.Duration{Seconds: maxCleanupInterval},
		UpstreamBindConfig:   inboundSource(k.ipv4, k.ipv6),

		UpstreamConnectionOptions: keepalive(k.mesh),
	}
	meta := serviceMetadata(slices.Collect(k.services.All)...)
	if o := k.rule.Object; o != nil && o.Spec.(*networkingv1.DestinationRule).TrafficPolicy != nil {
		meta["config"] = envoy.Text(o.Path())
	}
	c.Metadata = envoy.IstioMetadata(meta)
	if k.endpoint != "" {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		c.LbPolicy, c.CleanupInterval = clusterv3.Cluster_ROUND_ROBIN, nil
		host, port := splitEndpoint(k.endpoint)
		if host == "127.0.0.1" || host == "::1" {
			c.UpstreamBindConfig = nil
		}
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: envoy.Address(host, port)}},
			}},
		}}}
	}
	options := &httpv3.HttpProtocolOptions{}
	switch {
	case k.protocol.IsHTTP2():
		options.UpstreamProtocolOptions = envoy.ExplicitHTTP2()
	case k.protocol.Sniffed():
		options.UpstreamProtocolOptions = useDownstream()
	}
	policy := k.rule.Policy(k.port)
	if k.pool != nil {
		spec := k.pool.Spec.(*networkingv1.Sidecar)
		if spec.InboundConnectionPool != nil {
			policy.ConnectionPool = spec.InboundConnectionPool
		}
		for _, l := range spec.Ingress {
			if k.ingress != nil && l.GetPort().GetNumber() == k.port && l.ConnectionPool != nil {
				policy.ConnectionPool = l.ConnectionPool
			}
		}
	}
	destinationrule.Apply(c, options, policy, destinationrule.Target{Sniffed: k.protocol.Sniffed(), Inbound: true})
	setHTTPOptions(c, options)
	return envoy.NewResource(name, c)
}

func splitEndpoint(s string) (string, uint32) {
	if strings.HasPrefix(s, "unix://") {
		return s, 0
	}
	host, port, _ := net.SplitHostPort(s)
	n, _ := strconv.ParseUint(port, 10, 16)
	return host, uint32(n)
}
