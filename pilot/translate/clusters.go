package translate

import (
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// clusterKey is all that an outbound cluster depends on.
type clusterKey struct {
	service      *registry.Service
	port         uint32
	subset       string
	rule         destinationrule.Rule
	mesh         *mesh.Config
	router       bool
	capabilities node.Capabilities
	ipv4, ipv6   bool
	noTLS        bool // mTLS is off in the service's namespace
	identities   string
	headlessTLS  snapshot.TLS                    // for a headless service: which of its endpoints take mTLS
	inline       frozen.List[*registry.Endpoint] // for a service that Envoy resolves by DNS: the port's endpoints, of all networks
	policies     frozen.List[endpointPolicies]
	sni          bool // the SNI-DNAT cluster of a gateway that routes by server name
}

func (k clusterKey) name() string {
	if k.sni {
		return names.SNICluster(k.port, k.subset, k.service.Host)
	}
	return names.Cluster(names.Outbound, k.port, k.subset, k.service.Host)
}

// clusterGenerator generates the clusters of every service in scope. Each host is a partition. The fixed clusters are
// in none.
func clusterGenerator(c cohort.Scope) generator[string] {
	return generator[string]{
		all: func(v *view) []*envoy.Resource {
			out := []*envoy.Resource{v.t.fixedClusters.Get(fixedClusterKey{names.BlackHoleCluster, v.Mesh, c.Capabilities, false, false})}
			if c.Type != node.Router {
				out = append(out, v.t.fixedClusters.Get(fixedClusterKey{names.PassthroughCluster, v.Mesh, c.Capabilities, false, false}))
			}
			for s := range v.Index.ScopeOf(c.Namespace, c.Sidecar).Services {
				out = append(out, v.serviceClusters(c, s)...)
			}
			return out
		},
		affected: func(c *scope.Dirty) []string { return c.Hosts },
		partitions: eachPartition(func(v *view, host string) []*envoy.Resource {
			if s, ok := v.Index.ScopeOf(c.Namespace, c.Sidecar).Service(host); ok {
				return v.serviceClusters(c, s)
			}
			return nil
		}),
		locate: func(host string) locator {
			return func(r *envoy.Resource) int { return strings.Compare(hostKeyOf(r.Name), host) }
		},
		byHostKey: true,
	}
}

// serviceClusters makes the clusters of one service, by name.
func (v *view) serviceClusters(c cohort.Scope, s scope.Service) []*envoy.Resource {
	if s.Resolution == registry.Alias {
		return nil
	}
	endpoints := v.EndpointSummary(s.Key())
	k := clusterKey{
		service: s.Service, mesh: v.Mesh, router: c.Type == node.Router, capabilities: c.Capabilities, ipv4: c.IPv4, ipv6: c.IPv6,
		noTLS: v.noTLS(s.Namespace), identities: endpoints.Identities,
	}
	if s.Resolution == registry.Passthrough {
		k.headlessTLS = endpoints.TLS
	}
	if v.conflicts != nil {
		v.conflicts.partition = s.Host
	}
	rules := v.rules(c, s.Service)
	for _, name := range rules.Repeated {
		v.recordConflict(DuplicateSubset, s.Host+"/"+name)
	}
	var out []*envoy.Resource
	for p := range s.ImportedPorts {
		if p.Protocol == registry.UDP {
			continue
		}
		k.port = p.Number
		if s.Resolution == registry.DNS || s.Resolution == registry.DNSRoundRobin {
			inline := v.Endpoints(s.Key()).ByPort(s.Port(p.Number).Name)
			k.inline, k.policies = frozen.ListOf(inline...), v.endpointPolicies(inline)
		}
		for subset := range subsets(rules) {
			k.subset, k.sni = subset, false
			k.rule, _ = rules.Rule(subset)
			out = append(out, v.t.clusters.Get(k))
			if k.sni = true; hasAutoPassthrough(c) && !s.MeshExternal {
				out = append(out, v.t.clusters.Get(k))
			}
		}
	}
	slices.SortStableFunc(out, compareNames)
	return slices.CompactFunc(out, func(a, b *envoy.Resource) bool { return a.Name == b.Name })
}

// subsets yields the names of a service's subsets. The first is the empty name, which stands for the whole service.
func subsets(rules *destinationrule.Merged) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield("") {
			return
		}
		for _, s := range rules.Subsets {
			if !yield(s.Name) {
				return
			}
		}
	}
}

// noTLS reports whether mTLS is off for a whole namespace.
func (v *view) noTLS(namespace string) bool {
	if v.t.hooks.transport == nil {
		return true
	}
	if !v.hasTransportPolicies() {
		return false
	}
	return v.t.hooks.mode(v.t.hooks.transport.Select(v.Index, namespace)(feature.Workload{}), 0) == feature.Disable
}

// rules returns the DestinationRules in force for a cohort's calls to a service. Subsets beyond the limit for a service
// with that many ports are left out.
func (v *view) rules(c cohort.Scope, s *registry.Service) *destinationrule.Merged {
	return v.mergedRules.of(v.Index.Rules(c.Namespace, s, c.Rules)).Limit(limits.Subsets(v.HostClusters, len(s.Ports)))
}

// serviceRule returns the rule of the service itself, without a subset.
func (v *view) serviceRule(c cohort.Scope, s *registry.Service) destinationrule.Rule {
	rule, _ := v.rules(c, s).Rule("")
	return rule
}

// mergedRules caches merged rules that are many, or have many subsets: the cluster of each subset needs them. Safe for
// concurrent use.
type mergedRules struct {
	mu      sync.RWMutex
	byRules map[destinationrule.Rules]*destinationrule.Merged
}

func (m *mergedRules) of(rules destinationrule.Rules) *destinationrule.Merged {
	if rules.Empty() {
		return &destinationrule.Merged{}
	}
	m.mu.RLock()
	r := m.byRules[rules]
	m.mu.RUnlock()
	if r != nil {
		return r
	}
	if r = destinationrule.Merge(rules); !r.Large() {
		return r
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byRules == nil {
		m.byRules = map[destinationrule.Rules]*destinationrule.Merged{}
	}
	m.byRules[rules] = r
	return r
}

// buildCluster makes an outbound cluster.
func (h *hooks) buildCluster(k clusterKey) *envoy.Resource {
	port := k.service.Port(k.port)
	c := &clusterv3.Cluster{
		Name:            k.name(),
		AltStatName:     k.name() + ";",
		ConnectTimeout:  k.mesh.GetConnectTimeout(),
		CommonLbConfig:  &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: percent(0)},
		CircuitBreakers: unlimited(),
		Metadata:        clusterMetadata(k),
		LbPolicy:        clusterv3.Cluster_LEAST_REQUEST,
	}
	policy := k.rule.Policy(k.port)
	k.setDiscovery(h, c, policy)
	if k.subset == "" && !k.sni && registry.HasPersistentSession(k.service.Labels) {
		c.CommonLbConfig.OverrideHostStatus = sessionHosts()
	}
	http2 := port.Protocol.IsHTTP2()
	options := &httpv3.HttpProtocolOptions{}
	switch {
	case http2, port.Protocol == registry.HTTP && upgrades(k.mesh, policy):
		options.UpstreamProtocolOptions = envoy.ExplicitHTTP2()
	case port.Protocol.Sniffed() && !k.router:
		options.UpstreamProtocolOptions = useDownstream()
	}
	c.UpstreamConnectionOptions = keepalive(k.mesh)
	destinationrule.Apply(c, options, policy, destinationrule.Target{Sniffed: port.Protocol.Sniffed()})
	if prefersClose(k.service, policy) {
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
	if options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil {
		http2 = true
	}
	k.setTLS(h, c, options, policy, http2)
	setHTTPOptions(c, options)
	h.changeCluster(feature.Cluster{Mesh: k.mesh, Capabilities: k.capabilities}, c)
	return envoy.NewResource(c.Name, c)
}

// sessionHosts returns the health statuses of hosts to which a session may go on: draining ones are included.
func sessionHosts() *corev3.HealthStatusSet {
	return &corev3.HealthStatusSet{Statuses: []corev3.HealthStatus{
		corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_DEGRADED,
	}}
}

// upgrades reports whether the mesh wants HTTP/2 for a service that speaks HTTP/1, and no rule forbids it.
func upgrades(m *mesh.Config, p destinationrule.Policy) bool {
	return m.GetH2UpgradePolicy() == meshv1alpha1.MeshConfig_UPGRADE &&
		p.ConnectionPool.GetHttp().GetH2UpgradePolicy() != networkingv1alpha3.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE
}

// keepalive returns the mesh's TCP keepalive, nil where it has none.
func keepalive(m *mesh.Config) *clusterv3.UpstreamConnectionOptions {
	if m.GetTcpKeepalive() == nil {
		return nil
	}
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: destinationrule.Keepalive(m.GetTcpKeepalive())}
}

// setDiscovery sets how Envoy finds the endpoints.
func (k clusterKey) setDiscovery(h *hooks, c *clusterv3.Cluster, policy destinationrule.Policy) {
	kind := clusterv3.Cluster_EDS
	switch k.service.Resolution {
	case registry.DNS:
		kind = clusterv3.Cluster_STRICT_DNS
	case registry.DNSRoundRobin:
		kind = clusterv3.Cluster_LOGICAL_DNS
	case registry.Passthrough:
		if !k.router {
			kind = clusterv3.Cluster_ORIGINAL_DST
		}
	}
	if policy.LoadBalancer.GetSimple() == networkingv1alpha3.LoadBalancerSettings_PASSTHROUGH {
		kind = clusterv3.Cluster_ORIGINAL_DST
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	switch kind {
	case clusterv3.Cluster_ORIGINAL_DST:
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		if n, err := strconv.ParseUint(k.service.Port(k.port).TargetPort, 10, 16); err == nil && k.service.Provider == registry.External && uint32(n) != k.port {
			c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
				OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{UpstreamPortOverride: envoy.UInt32(uint32(n))},
			}
		}
	case clusterv3.Cluster_EDS:
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: envoy.ADS(), ServiceName: c.Name}
	default:
		c.DnsLookupFamily = dnsFamily(k.ipv4, k.ipv6)
		// These fields and not a DNS cluster extension: the real istiod sends them, and every supported Envoy takes
		// them.
		c.DnsRefreshRate = k.mesh.GetDnsRefreshRate()        //nolint:staticcheck
		c.RespectDnsTtl = true                               //nolint:staticcheck
		c.DnsJitter = envoy.Duration(100 * time.Millisecond) //nolint:staticcheck
		c.TypedDnsResolverConfig = &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: envoy.Any(&caresv3.CaresDnsResolverConfig{})}
		c.LoadAssignment = k.inlineAssignment(h)
	}
}

func dnsFamily(v4, v6 bool) clusterv3.Cluster_DnsLookupFamily {
	switch {
	case v4 && v6:
		return clusterv3.Cluster_ALL
	case v6:
		return clusterv3.Cluster_V6_ONLY
	}
	return clusterv3.Cluster_V4_ONLY
}

func (k clusterKey) inlineAssignment(h *hooks) *endpointv3.ClusterLoadAssignment {
	a := assignmentKey{
		service: k.service, rule: k.rule, port: k.service.Port(k.port).Name, number: k.port, subset: k.subset, policies: k.policies, sni: k.sni,
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: k.name(), Endpoints: a.localities(h, k.inline.All, func(address string) bool { return address != "" })}
}

// setTLS sets how the cluster's connections are secured.
func (k clusterKey) setTLS(h *hooks, c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions, policy destinationrule.Policy, http2 bool) {
	if k.sni {
		return
	}
	sni, ids := names.SNICluster(k.port, k.subset, k.service.Host), k.peerIDs()
	if t := policy.TLS; t != nil {
		if t.Sni != "" {
			sni = t.Sni
		}
		if len(t.SubjectAltNames) > 0 {
			ids = k.withTrustDomainAliases(t.SubjectAltNames)
		}
		destinationrule.SetTLS(c, options, t, destinationrule.TLSOptions{
			Router: k.router, HTTP2: http2, MTLS: h.upstream(feature.Upstream{SNI: sni, Identities: ids, HTTP2: http2, PeerExchange: k.capabilities.Has(node.NetworkMetadataExchange)}),
		})
		return
	}
	if k.noTLS || k.service.MeshExternal || !k.mesh.AutoMTLS() {
		return
	}
	tls := h.upstream(feature.Upstream{SNI: sni, Identities: ids, HTTP2: http2, PeerExchange: k.capabilities.Has(node.NetworkMetadataExchange)})
	if k.service.Resolution == registry.Passthrough {
		if k.headlessTLS == snapshot.NoTLS {
			return
		}
		if c.GetType() == clusterv3.Cluster_ORIGINAL_DST {
			if k.headlessTLS == snapshot.AllTLS {
				c.TransportSocket = tls
			}
			return
		}
	}
	if c.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		return
	}
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-istio", Match: tlsModeIstio(), TransportSocket: tls},
		{Name: "tlsMode-disabled", Match: &structpb.Struct{}, TransportSocket: plaintext},
	}
}

// peerIDs returns the SPIFFE IDs that may answer for the service, sorted.
func (k clusterKey) peerIDs() []string {
	return k.withTrustDomainAliases(append(strings.Fields(k.identities), k.service.ServiceAccounts...))
}

// withTrustDomainAliases returns SPIFFE IDs together with the same IDs in the aliases of the mesh's trust domain,
// sorted.
func (k clusterKey) withTrustDomainAliases(ids []string) []string {
	own := "spiffe://" + k.mesh.GetTrustDomain() + "/"
	ids = slices.Clip(ids)
	for _, id := range ids {
		if rest, ok := strings.CutPrefix(id, own); ok {
			for _, alias := range k.mesh.GetTrustDomainAliases() {
				ids = append(ids, "spiffe://"+alias+"/"+rest)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func clusterMetadata(k clusterKey) *corev3.Metadata {
	m := serviceMetadata(k.service)
	if o := k.rule.Object; o != nil {
		m["config"] = envoy.Text(o.Path())
	}
	if k.subset != "" {
		m["subset"] = envoy.Text(k.subset)
	}
	if k.service.MeshExternal && k.subset == "" {
		m["external"] = structpb.NewBoolValue(true)
	}
	return envoy.IstioMetadata(m)
}

func serviceMetadata(services ...*registry.Service) map[string]*structpb.Value {
	var list []*structpb.Value
	for _, s := range services {
		list = append(list, structpb.NewStructValue(envoy.Fields(map[string]*structpb.Value{
			"host": envoy.Text(s.Host), "name": envoy.Text(s.Name), "namespace": envoy.Text(s.Namespace),
		})))
	}
	m := map[string]*structpb.Value{}
	if len(list) > 0 {
		m["services"] = envoy.List(list...)
	}
	return m
}

// unlimited returns circuit breakers that never open: Envoy's own defaults are far below what a service takes.
func unlimited() *clusterv3.CircuitBreakers {
	limit := envoy.UInt32(math.MaxUint32)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: limit, MaxPendingRequests: limit, MaxRequests: limit, MaxRetries: limit,
	}}}
}

func useDownstream() *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig {
	return &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
	}}
}

// setHTTPOptions attaches the options unless they are empty. With any other option Envoy requires an explicit protocol.
func setHTTPOptions(c *clusterv3.Cluster, o *httpv3.HttpProtocolOptions) {
	if o.UpstreamProtocolOptions == nil {
		if o.CommonHttpProtocolOptions == nil && o.UpstreamHttpProtocolOptions == nil {
			return
		}
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
		}}
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoy.Any(o)}
}

// fixedClusterKey is all that a cluster without a service depends on.
type fixedClusterKey struct {
	name         string
	mesh         *mesh.Config
	capabilities node.Capabilities
	ipv4, ipv6   bool
}

func (h *hooks) buildFixedCluster(k fixedClusterKey) *envoy.Resource {
	c := &clusterv3.Cluster{Name: k.name, ConnectTimeout: k.mesh.GetConnectTimeout()}
	if k.name == names.BlackHoleCluster {
		c.AltStatName = k.name + ";"
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		return envoy.NewResource(k.name, c)
	}
	c.AltStatName = names.PassthroughCluster + ";"
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
	c.CircuitBreakers = unlimited()
	c.UpstreamConnectionOptions = keepalive(k.mesh)
	setHTTPOptions(c, &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: envoy.Duration(5 * time.Minute)},
		UpstreamProtocolOptions:   useDownstream(),
	})
	if k.name == names.InboundPassthroughCluster {
		c.UpstreamBindConfig = inboundSource(k.ipv4, k.ipv6)
	} else {
		h.changeCluster(feature.Cluster{Mesh: k.mesh, Capabilities: k.capabilities}, c)
	}
	return envoy.NewResource(k.name, c)
}

// inboundSource returns the address from which a sidecar calls its own workload, so that the call is not captured
// again. There is one for each address family of the proxy.
func inboundSource(ipv4, ipv6 bool) *corev3.BindConfig {
	const v4, v6 = "127.0.0.6", "::6"
	switch {
	case !ipv6:
		return &corev3.BindConfig{SourceAddress: envoy.SocketAddress(v4, 0)}
	case !ipv4:
		return &corev3.BindConfig{SourceAddress: envoy.SocketAddress(v6, 0)}
	}
	return &corev3.BindConfig{
		SourceAddress:        envoy.SocketAddress(v4, 0),
		ExtraSourceAddresses: []*corev3.ExtraSourceAddress{{Address: envoy.SocketAddress(v6, 0)}},
	}
}
