package cds

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/frozen"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/scope/traffic"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate/eds"
	"github.com/istiod-lite/istiod-lite/pilot/translate/engine"
	"github.com/istiod-lite/istiod-lite/pilot/translate/gateway"
	"github.com/istiod-lite/istiod-lite/pilot/translate/hooks"
	"github.com/istiod-lite/istiod-lite/pilot/translate/view"
	"github.com/istiod-lite/istiod-lite/registry"
)

// clusterKey is the whole input of an outbound cluster.
type clusterKey struct {
	service      *registry.Service
	port         uint32
	subset       string
	rule         traffic.Rule
	mesh         *mesh.Config
	router       bool
	capabilities node.Capabilities
	files        node.Files // the proxy's own files for mutual TLS
	ipv4, ipv6   bool
	noTLS        bool // whether mTLS is off in the service's namespace
	identities   frozen.List[string]
	endpointTLS  snapshot.TLS                    // which endpoints accept mTLS if callsAll, else NoTLS
	inline       frozen.List[*registry.Endpoint] // for a service that Envoy resolves by DNS: the port's endpoints in all networks
	policies     frozen.List[eds.EndpointPolicies]
	place        eds.Place // location of the proxy, for the endpoints in inline
	sni          bool      // whether it is the SNI-DNAT cluster of a gateway that routes by server name
	selections   feature.Selections
}

// callsAll reports whether clients of all ports of the service call endpoints by their own addresses. Mutual TLS then
// depends on the endpoints: it is used only if all of them accept it.
func (k clusterKey) callsAll() bool {
	return k.service.Resolution == registry.Passthrough || k.rule.PassesThrough()
}

func (k clusterKey) name() string {
	if k.sni {
		return names.SNICluster(k.port, k.subset, k.service.Host)
	}
	return names.Cluster(names.Outbound, k.port, k.subset, k.service.Host)
}

// Outbound generates the clusters of every service in scope. Each host is a partition. The fixed clusters belong to
// none.
func (m *Clusters) Outbound(v *view.View, c cohort.Client) engine.Generator[string] {
	return engine.Generator[string]{
		All: func() []*envoy.Resource {
			out := []*envoy.Resource{m.fixed.Get(fixedClusterKey{name: names.BlackHoleCluster, mesh: v.Mesh().With(c.Settings)})}
			if c.Type != node.Router {
				out = append(out, m.fixed.Get(fixedClusterKey{
					name: names.PassthroughCluster, mesh: v.Mesh().With(c.Settings), capabilities: c.Capabilities,
					selections: m.hooks.ClusterSelections(c.Selections),
				}))
				if v.DynamicDNS() {
					out = append(out, m.fixed.Get(fixedClusterKey{
						name: names.AllowAnyDynamicDNSCluster, mesh: v.Mesh().With(c.Settings), capabilities: c.Capabilities, ipv4: c.IPv4,
						ipv6: c.IPv6, selections: m.hooks.ClusterSelections(c.Selections),
					}))
				}
			}
			for s := range v.ScopeOf(c.Namespace, c.Sidecar).Services {
				out = append(out, m.serviceClusters(v, c, s)...)
			}
			return out
		},
		Affected: func(d *scope.Dirty) []string { return d.Hosts },
		Partitions: engine.Each(func(host string) []*envoy.Resource {
			if s, ok := v.ScopeOf(c.Namespace, c.Sidecar).Service(host); ok {
				return m.serviceClusters(v, c, s)
			}
			return nil
		}),
		Locate: func(host string) engine.Locator {
			return func(name string) int { return strings.Compare(names.ClusterHost(name), host) }
		},
		Order: names.CompareByHost,
	}
}

// Named returns the cluster of a service by its name, or nil if there is none.
func (m *Clusters) Named(v *view.View, c cohort.Client, n names.ClusterName) *envoy.Resource {
	s, ok := v.ScopeOf(c.Namespace, c.Sidecar).Service(n.Host)
	if !ok {
		return nil
	}
	all := m.serviceClusters(v, c, s)
	if i := slices.IndexFunc(all, func(r *envoy.Resource) bool { return r.Name == n.String() }); i >= 0 {
		return all[i]
	}
	return nil
}

// serviceClusters makes the clusters of one service, by name.
func (m *Clusters) serviceClusters(v *view.View, c cohort.Client, s scope.Service) []*envoy.Resource {
	if s.Resolution == registry.Alias {
		return nil
	}
	endpoints := v.EndpointSummary(s.Key())
	k := clusterKey{
		service: s.Service, mesh: v.Mesh().With(c.Settings), router: c.Type == node.Router, capabilities: c.Capabilities, files: c.Files,
		ipv4: c.IPv4, ipv6: c.IPv6,
		noTLS: m.hooks.NoTLS(v, s.Namespace), identities: endpoints.Identities, selections: m.hooks.ClusterSelections(c.Selections),
	}
	rules := v.MergedRules(c, s.Service)
	for _, name := range rules.Repeated {
		v.Log.Add(s.Host, view.DuplicateSubset, s.Host+"/"+name)
	}
	var out []*envoy.Resource
	for p := range s.ImportedPorts {
		if p.Protocol == protocols.UDP {
			continue
		}
		k.port = p.Number
		if s.Resolution.EndpointsInCluster() {
			inline := v.Endpoints(s.Key()).ByPort(s.Port(p.Number).Name)
			k.inline, k.policies = frozen.ListOf(inline...), eds.Policies(v, m.hooks, inline)
		}
		for subset := range rules.SubsetNames {
			k.subset, k.sni = subset, false
			k.rule, _ = rules.Rule(subset)
			k.endpointTLS = snapshot.NoTLS
			if k.callsAll() {
				k.endpointTLS = endpoints.TLS
			}
			if !k.inline.Empty() {
				k.place = eds.PlaceOf(v, c, m.hooks.Choice(v.Mesh(), s.Service, k.rule.Policy(p.Number)))
			}
			out = append(out, m.clusters.Get(k))
			if k.sni = true; gateway.HasAutoPassthrough(c) && gateway.PassesOn(s.Service) {
				out = append(out, m.clusters.Get(k))
			}
		}
	}
	slices.SortStableFunc(out, envoy.CompareNames)
	return slices.CompactFunc(out, func(a, b *envoy.Resource) bool { return a.Name == b.Name })
}

// buildCluster makes an outbound cluster.
func (b builder) buildCluster(k clusterKey) *envoy.Resource {
	port := k.service.Port(k.port)
	c := &clusterv3.Cluster{
		Name:            k.name(),
		AltStatName:     k.statName() + ";",
		ConnectTimeout:  k.mesh.GetConnectTimeout(),
		CommonLbConfig:  &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: percent(0)},
		CircuitBreakers: unlimited(),
		Metadata:        clusterMetadata(k),
		LbPolicy:        clusterv3.Cluster_LEAST_REQUEST,
	}
	policy := k.rule.Policy(k.port)
	choice := b.Choice(k.mesh, k.service, policy)
	policy = policy.WithDefaults(k.mesh.GetDefaultTrafficPolicy())
	k.setDiscovery(b, c, policy, choice)
	if k.subset == "" && !k.sni && names.HasPersistentSession(k.service.Labels) {
		c.CommonLbConfig.OverrideHostStatus = sessionHosts()
	}
	http2 := port.Protocol.IsHTTP2()
	options := &httpv3.HttpProtocolOptions{}
	switch {
	case http2, port.Protocol == protocols.HTTP && upgrades(k.mesh, policy):
		options.UpstreamProtocolOptions = envoy.ExplicitHTTP2()
	case port.Protocol.Sniffed() && !k.router:
		options.UpstreamProtocolOptions = envoy.DownstreamProtocol()
	}
	c.UpstreamConnectionOptions = keepalive(k.mesh)
	b.ApplyPolicy(policy, feature.PolicyTarget{Sniffed: port.Protocol.Sniffed() && !k.router, Choice: choice}, c, options)
	if c.GetClusterType() != nil {
		resolveCalledHosts(k.mesh, k.ipv4, k.ipv6, c) // unless it has another load balancer
		c.CommonLbConfig = nil
	}
	http2 = options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil
	k.setTLS(b, c, options, policy, http2)
	if !k.sni {
		setProxyProtocol(b, c, policy)
	}
	if port.Protocol.IsHTTP() || port.Protocol.Sniffed() {
		preserveCase(k.mesh, options)
	}
	setHTTPOptions(c, options)
	limitBuffers(k.mesh, k.router, c)
	b.ChangeCluster(feature.Cluster{
		Mesh: k.mesh, Capabilities: k.capabilities, HTTP2: http2, Downstream: options.GetUseDownstreamProtocolConfig() != nil,
	}, k.selections, c)
	return envoy.NewResource(c.Name, c)
}

// statName returns the name of the cluster in statistics.
func (k clusterKey) statName() string {
	if pattern := k.mesh.GetOutboundClusterStatName(); pattern != "" && !k.sni {
		return view.StatName(pattern, k.service, k.port, 0, k.subset)
	}
	return k.name()
}

// sessionHosts returns the health statuses of hosts at which a session may continue, including draining ones.
func sessionHosts() *corev3.HealthStatusSet {
	return &corev3.HealthStatusSet{Statuses: []corev3.HealthStatus{
		corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_DEGRADED,
	}}
}

// upgrades reports whether the mesh uses HTTP/2 for a service of HTTP/1, and no rule forbids it.
func upgrades(m *mesh.Config, p traffic.Policy) bool {
	return m.GetH2UpgradePolicy() == meshv1alpha1.MeshConfig_UPGRADE &&
		p.ConnectionPool.GetHttp().GetH2UpgradePolicy() != networkingv1alpha3.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE
}

// keepalive returns the mesh's TCP keepalive, or nil if it has none.
func keepalive(m *mesh.Config) *clusterv3.UpstreamConnectionOptions {
	if m.GetTcpKeepalive() == nil {
		return nil
	}
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: feature.Keepalive(m.GetTcpKeepalive())}
}

// setDiscovery sets how Envoy finds the endpoints.
func (k clusterKey) setDiscovery(b builder, c *clusterv3.Cluster, policy traffic.Policy, choice feature.Choice) {
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
	if traffic.Passthrough(policy.LoadBalancer) {
		kind = clusterv3.Cluster_ORIGINAL_DST
	}
	if k.service.Resolution == registry.DynamicDNS && kind != clusterv3.Cluster_ORIGINAL_DST {
		resolveCalledHosts(k.mesh, k.ipv4, k.ipv6, c)
		return
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
	switch kind {
	case clusterv3.Cluster_ORIGINAL_DST:
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		if n, err := strconv.ParseUint(k.service.Port(k.port).TargetPort, 10, 16); err == nil &&
			k.service.Provider == registry.External && uint32(n) != k.port {
			c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
				OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{UpstreamPortOverride: envoy.UInt32(uint32(n))},
			}
		}
	case clusterv3.Cluster_EDS:
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: envoy.ADS(), ServiceName: c.Name}
	default:
		c.DnsLookupFamily = dnsFamily(k.ipv4, k.ipv6)
		// These fields, and not a DNS cluster extension, are what istiod sends and every supported Envoy accepts.
		c.DnsRefreshRate = k.mesh.GetDnsRefreshRate()        //nolint:staticcheck
		c.RespectDnsTtl = true                               //nolint:staticcheck
		c.DnsJitter = envoy.Duration(100 * time.Millisecond) //nolint:staticcheck
		c.TypedDnsResolverConfig = resolver(envoy.UInt32(100))
		c.LoadAssignment = k.inlineAssignment(b, choice)
		if kind == clusterv3.Cluster_LOGICAL_DNS && !hasOneEndpoint(c.LoadAssignment) {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
		}
	}
}

// hasOneEndpoint reports whether an assignment has exactly one endpoint, as LOGICAL_DNS requires.
func hasOneEndpoint(a *endpointv3.ClusterLoadAssignment) bool {
	return len(a.GetEndpoints()) == 1 && len(a.Endpoints[0].LbEndpoints) == 1
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

func (k clusterKey) inlineAssignment(b builder, choice feature.Choice) *endpointv3.ClusterLoadAssignment {
	return eds.Inline(b.Hooks, eds.InlineCluster{
		Name: k.name(), Service: k.service, Rule: k.rule, Port: k.port, Subset: k.subset, SNI: k.sni, Endpoints: k.inline, Policies: k.policies,
		Place: k.place, Choice: choice,
	})
}

// setTLS sets the TLS of the cluster's connections.
func (k clusterKey) setTLS(b builder, c *clusterv3.Cluster, options *httpv3.HttpProtocolOptions, policy traffic.Policy, http2 bool) {
	if k.sni {
		return
	}
	sni, ids := names.SNICluster(k.port, k.subset, k.service.Host), k.peerIDs()
	mutual := func() *corev3.TransportSocket { // the mesh's own TLS
		return b.Upstream(feature.Upstream{SNI: sni, Identities: ids, HTTP2: http2, Compliance: k.mesh.Compliance,
			PeerExchange: k.capabilities.Has(node.NetworkMetadataExchange)})
	}
	if t := k.withFiles(policy.TLS); t != nil {
		if t.Sni != "" || c.GetClusterType() != nil { // hosts that are resolved per request are verified by their own names
			sni = t.Sni
		}
		o := feature.PolicyTLS{Mesh: k.mesh, Credentials: k.router || k.rule.HasCredentials(), HTTP2: http2,
			Certificate: k.rule.ClientCertificate, InMesh: policy.TLS.Mode == networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL}
		if k.service.Provider == registry.External {
			o.Identities = ids
		}
		if len(t.SubjectAltNames) > 0 {
			ids = slices.Clone(t.SubjectAltNames) // unchanged: the list may also name identities in trust domain aliases
			slices.Sort(ids)
			ids = slices.Compact(ids)
		}
		o.Mutual = mutual()
		b.ApplyTLS(t, o, c, options)
		return
	}
	if k.noTLS || k.service.MeshExternal || !k.mesh.AutoMTLS() {
		return
	}
	if c.GetClusterType() != nil { // hosts that are resolved per request have no known TLS mode
		sni, ids = "", nil
		options.UpstreamHttpProtocolOptions = &corev3.UpstreamHttpProtocolOptions{AutoSni: true, AutoSanValidation: true}
	}
	tls := mutual()
	if k.files.Chain != "" {
		t := k.fileTLS(&networkingv1alpha3.ClientTLSSettings{Sni: sni, SubjectAltNames: ids})
		b.ApplyTLS(t, feature.PolicyTLS{Mesh: k.mesh, HTTP2: http2, InMesh: true}, c, options)
		tls, c.TransportSocket = cmp.Or(c.TransportSocket, tls), nil
	}
	if c.GetType() == clusterv3.Cluster_ORIGINAL_DST { // the cluster knows no endpoint, so one setting applies to all
		if k.endpointTLS == snapshot.AllTLS || !k.callsAll() {
			c.TransportSocket = tls
		}
		return
	}
	if k.service.Resolution == registry.Passthrough && k.endpointTLS == snapshot.NoTLS {
		return
	}
	c.TransportSocketMatches = []*clusterv3.Cluster_TransportSocketMatch{
		{Name: "tlsMode-istio", Match: eds.TLSModeIstio(), TransportSocket: tls},
		{Name: "tlsMode-disabled", Match: &structpb.Struct{}, TransportSocket: hooks.Plaintext},
	}
}

// withFiles returns the TLS settings of a policy. As in istiod, mutual TLS within the mesh uses the proxy's own files,
// if it has them, even if the policy names other files.
func (k clusterKey) withFiles(t *networkingv1alpha3.ClientTLSSettings) *networkingv1alpha3.ClientTLSSettings {
	switch t.GetMode() {
	case networkingv1alpha3.ClientTLSSettings_MUTUAL, networkingv1alpha3.ClientTLSSettings_ISTIO_MUTUAL:
		if k.files.Chain != "" && !k.service.MeshExternal {
			return k.fileTLS(t)
		}
	}
	return t
}

// fileTLS returns settings for mutual TLS by the proxy's own files, with the names and the SNI of t.
func (k clusterKey) fileTLS(t *networkingv1alpha3.ClientTLSSettings) *networkingv1alpha3.ClientTLSSettings {
	return &networkingv1alpha3.ClientTLSSettings{
		Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL, ClientCertificate: k.files.Chain, PrivateKey: k.files.Key,
		CaCertificates:  k.files.Roots,
		SubjectAltNames: t.SubjectAltNames, Sni: t.Sni, InsecureSkipVerify: t.InsecureSkipVerify,
	}
}

// setProxyProtocol adds a PROXY header at the beginning of connections, before TLS.
func setProxyProtocol(b builder, c *clusterv3.Cluster, policy traffic.Policy) {
	if policy.ProxyProtocol == nil {
		return
	}
	for _, m := range c.TransportSocketMatches {
		m.TransportSocket = b.ApplyProxyProtocol(policy.ProxyProtocol, m.TransportSocket)
	}
	if c.TransportSocketMatches == nil {
		c.TransportSocket = b.ApplyProxyProtocol(policy.ProxyProtocol, cmp.Or(c.TransportSocket, hooks.Plaintext))
	}
}

// peerIDs returns the SPIFFE IDs that the peer may have, sorted.
func (k clusterKey) peerIDs() []string {
	return k.withTrustDomainAliases(append(slices.Collect(k.identities.All), k.service.ServiceAccounts...))
}

// withTrustDomainAliases returns SPIFFE IDs together with the same IDs in the aliases of the mesh's trust domain,
// sorted. It does not change its argument, which may be a part of an object.
func (k clusterKey) withTrustDomainAliases(ids []string) []string {
	own := "spiffe://" + k.mesh.GetTrustDomain() + "/"
	ids = slices.Clone(ids)
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
	m := map[string]*structpb.Value{}
	if k.service.Resolution != registry.DynamicDNS { // its services are the called hosts
		m = serviceMetadata(k.service)
	}
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

// unlimited returns circuit breakers that never open, because Envoy's defaults are far too low for a service.
func unlimited() *clusterv3.CircuitBreakers {
	limit := envoy.UInt32(math.MaxUint32)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: limit, MaxPendingRequests: limit, MaxRequests: limit, MaxRetries: limit,
	}}}
}

// setHTTPOptions attaches the options unless they are empty. With any other option Envoy requires an explicit protocol.
func setHTTPOptions(c *clusterv3.Cluster, o *httpv3.HttpProtocolOptions) {
	if o.UpstreamProtocolOptions == nil {
		if o.CommonHttpProtocolOptions == nil && o.UpstreamHttpProtocolOptions == nil && o.OutlierDetection == nil {
			return
		}
		o.UpstreamProtocolOptions = envoy.ExplicitHTTP1()
	}
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": envoy.Any(o)}
}

// preserveCase keeps the case of HTTP/1 headers if the mesh configuration says so.
func preserveCase(m *mesh.Config, o *httpv3.HttpProtocolOptions) {
	if !envoy.PreservesCase(m) {
		return
	}
	if o.UpstreamProtocolOptions == nil {
		o.UpstreamProtocolOptions = envoy.ExplicitHTTP1()
	}
	for _, h1 := range []*corev3.Http1ProtocolOptions{o.GetExplicitHttpConfig().GetHttpProtocolOptions(),
		o.GetUseDownstreamProtocolConfig().GetHttpProtocolOptions()} {
		if h1 != nil {
			h1.HeaderKeyFormat = envoy.PreserveCase()
		}
	}
}

// limitBuffers limits the buffers of each connection of a cluster, as the mesh configuration says.
func limitBuffers(m *mesh.Config, router bool, c *clusterv3.Cluster) {
	const edge = 32 << 10
	s := m.GetDefaultConfig().GetConnectionSettings()
	switch n := s.GetClusterPerConnectionBufferLimitBytes(); {
	case n.GetValue() > 0:
		c.PerConnectionBufferLimitBytes = envoy.UInt32(uint32(n.Value))
	case n == nil && router && s.GetProfile() == meshv1alpha1.ProxyConfig_ConnectionSettings_EDGE:
		c.PerConnectionBufferLimitBytes = envoy.UInt32(edge)
	}
}

// percent returns a percentage.
func percent(v float64) *typev3.Percent { return &typev3.Percent{Value: v} }
