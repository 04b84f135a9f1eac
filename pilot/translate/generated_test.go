package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"
	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/registry"
)

// A generated world is small, and its objects conflict in every way: hosts that are short names of other hosts,
// addresses and ports that several services want, aliases, and patterns over all of them.

// generatedStep is the changes of one commit. A nil value is a deletion.
type generatedStep struct {
	services  map[registry.ServiceKey]*registry.Service
	endpoints map[registry.ServiceKey][]*registry.Endpoint
	objects   map[kinds.Key]*kinds.Object
	mesh      int // of generatedMeshes
}

func (s generatedStep) GoString() string {
	var b strings.Builder
	for k, v := range s.services {
		fmt.Fprintf(&b, "\n service %v: %+v", k, v)
	}
	for k, list := range s.endpoints {
		fmt.Fprintf(&b, "\n endpoints %v:", k)
		for _, e := range list {
			fmt.Fprintf(&b, " %+v", *e)
		}
	}
	for k, o := range s.objects {
		fmt.Fprintf(&b, "\n %v: ", k)
		if o != nil {
			fmt.Fprintf(&b, "%v %+v", o.Created.Unix(), o.Spec)
		}
	}
	fmt.Fprintf(&b, "\n mesh %d", s.mesh)
	return b.String()
}

var (
	generatedHosts = []string{
		"web.a.svc.cluster.local", "web.b.svc.cluster.local", "api.a.svc.cluster.local", "x.example.com", "y.example.com",
		"*.example.com", "web.a", "10.0.0.1", "alias.a.svc.cluster.local",
		"alias.b.svc.cluster.local", "z_.x.example.com", "web", "web.a.svc", "fd00::1",
		"web.a.svc.clusterset.local",
	}
	generatedPorts = []registry.Port{
		{Name: "http", Number: 80, Protocol: protocols.HTTP},
		{Name: "web", Number: 80, Protocol: protocols.GRPCWeb},
		{Name: "tcp", Number: 80, Protocol: protocols.TCP},
		{Name: "any", Number: 80, Protocol: protocols.Unsupported},
		{Name: "http", Number: 9000, Protocol: protocols.HTTP},
		{Name: "tcp", Number: 9000, Protocol: protocols.TCP},
		{Name: "tls", Number: 443, Protocol: protocols.TLS},
		{Name: "mongo", Number: 9000, Protocol: protocols.Mongo},
		{Name: "udp", Number: 80, Protocol: protocols.UDP},
		{Name: "any", Number: 9000, Protocol: protocols.Unsupported},
		{Name: "grpc", Number: 9000, Protocol: protocols.GRPC},
	}
	generatedVirtualServiceHosts = []string{
		"web", "web.b.svc.cluster.local", "x.example.com", "*.example.com", "*", "alone.example.org", "web.a", "10.0.0.1",
		"alias.a.svc.cluster.local",
		"y.example.com", "*-x.example.com", "fd00::1", "*.web.b.svc.cluster.local",
		"*e.com", "*_.x.example.com", "*b.a.svc.cluster.local",
	}
	generatedServers = []string{"*", "*.example.com", "x.example.com", "y.example.com", "alone.example.org", "a/*.example.com",
		"b/x.example.com", "*-x.example.com", "web.a"}
	generatedExports  = [][]string{nil, nil, nil, {"."}, {"b"}, {"~"}, {"*"}}
	generatedSidecars = []*networkingv1.Sidecar{
		{},
		{Egress: []*networkingv1alpha3.IstioEgressListener{{Hosts: []string{"./*"}}}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{{Hosts: []string{"*/*.example.com", "~/*"}}}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{
			{Hosts: []string{"*/*"}, Port: &networkingv1alpha3.SidecarPort{Number: 9000, Protocol: "TCP", Name: "x"}, Bind: "127.0.0.9"},
			{Hosts: []string{"a/*"}},
		}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{
			{Hosts: []string{"*/*"}, Port: &networkingv1alpha3.SidecarPort{Number: 80, Protocol: "TLS", Name: "x"}},
			{Hosts: []string{"b/*"}, CaptureMode: networkingv1alpha3.CaptureMode_NONE},
		}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{{Hosts: []string{"b/*"}}}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{{Hosts: []string{"*/*"},
			Port: &networkingv1alpha3.SidecarPort{Number: 9000, Protocol: "HTTP", Name: "x"}}, {Hosts: []string{"*/*"}}}},
		{OutboundTrafficPolicy: &networkingv1alpha3.OutboundTrafficPolicy{Mode: networkingv1alpha3.OutboundTrafficPolicy_REGISTRY_ONLY}},
		// On sockets: all ports, one port, and two listeners on one socket whose route configurations look like those
		// of a port.
		{Egress: []*networkingv1alpha3.IstioEgressListener{
			{Hosts: []string{"*/*"}, Port: &networkingv1alpha3.SidecarPort{Protocol: "HTTP", Name: "x"}, Bind: "unix:///x.sock"},
			{Hosts: []string{"b/*"}, Port: &networkingv1alpha3.SidecarPort{Protocol: "TCP", Name: "y"}, Bind: "unix://@y"},
			{Hosts: []string{"*/*"}},
		}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{
			{Hosts: []string{"a/*"}, Port: &networkingv1alpha3.SidecarPort{Number: 80, Protocol: "HTTP", Name: "x"}, Bind: "unix:///x:80"},
			{Hosts: []string{"*/*"}, Port: &networkingv1alpha3.SidecarPort{Number: 9000, Protocol: "HTTP", Name: "y"}, Bind: "unix:///x:80"},
			{Hosts: []string{"*/*"}, Port: &networkingv1alpha3.SidecarPort{Name: "z"}, Bind: "unix://@z"},
		}},
		// HTTP proxies: beside the catch-all, on a port that services have too, and alone.
		{Egress: []*networkingv1alpha3.IstioEgressListener{
			{Hosts: []string{"*/*"}, Port: &networkingv1alpha3.SidecarPort{Number: 3128, Protocol: "HTTP_PROXY", Name: "x"}, Bind: "127.0.0.9"},
			{Hosts: []string{"b/*"}, Port: &networkingv1alpha3.SidecarPort{Number: 9000, Protocol: "HTTP_PROXY", Name: "y"}},
			{Hosts: []string{"*/*"}},
		}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{
			{Hosts: []string{"b/*"}, Port: &networkingv1alpha3.SidecarPort{Number: 3128, Protocol: "HTTP_PROXY", Name: "x"},
				CaptureMode: networkingv1alpha3.CaptureMode_NONE},
			{Hosts: []string{"*/*"}, Port: &networkingv1alpha3.SidecarPort{Protocol: "HTTP_PROXY", Name: "y"}, Bind: "unix:///y.sock"},
		}},
		// Exclusions: of a namespace, of hosts of any namespace, of the own namespace, and of one listener.
		{Egress: []*networkingv1alpha3.IstioEgressListener{{Hosts: []string{"*/*", "~b/*"}}}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{{Hosts: []string{"~/*.example.com", "*/*", "~./web.a.svc.cluster.local"}}}},
		{Egress: []*networkingv1alpha3.IstioEgressListener{
			{Hosts: []string{"*/*", "~/x.example.com"}, Port: &networkingv1alpha3.SidecarPort{Number: 9000, Protocol: "HTTP", Name: "x"}},
			{Hosts: []string{"a/*", "b/*", "~a/*"}},
		}},
	}
)

// generatedProvider is an authorizer: a service of generated worlds, which may be there or not.
var generatedProvider = &meshv1alpha1.MeshConfig_ExtensionProvider{
	Name: "authorizer", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{
		EnvoyExtAuthzGrpc: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{Service: generatedHosts[4],
			Port: 9000},
	},
}

// generatedLog takes access logs, and is a service of generated worlds too.
var generatedLog = &meshv1alpha1.MeshConfig_ExtensionProvider{
	Name: "log", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyTcpAls{
		EnvoyTcpAls: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyTcpGrpcV3LogProvider{Service: generatedHosts[4], Port: 9000},
	},
}

// customPolicy is a policy that has the authorizer of generated worlds asked.
var customPolicy = &securityv1.AuthorizationPolicy{
	Action: securityv1.AuthorizationPolicy_CUSTOM,
	ActionDetail: &securityv1.AuthorizationPolicy_Provider{
		Provider: &securityv1beta1.AuthorizationPolicy_ExtensionProvider{Name: generatedProvider.Name},
	},
	Rules: []*securityv1beta1.Rule{{}},
}

func generatedMeshes() []*mesh.Config {
	only, private := mesh.Default(), mesh.Default()
	only.OutboundTrafficPolicy.Mode = meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY
	private.DefaultServiceExportTo, private.DefaultVirtualServiceExportTo = []string{"."}, []string{"b"}
	all := []*mesh.Config{mesh.Default(), only, private}
	for _, m := range all {
		m.ExtensionProviders = append(m.ExtensionProviders, generatedProvider, generatedLog)
	}
	only.DefaultProviders = &meshv1alpha1.MeshConfig_DefaultProviders{AccessLogging: []string{generatedLog.Name}}
	return all
}

func one[T any](t *rapid.T, of []T) T { return rapid.SampledFrom(of).Draw(t, "one") }

func chance(t *rapid.T, in int) bool { return rapid.IntRange(1, in).Draw(t, "chance") == 1 }

func some[T any](t *rapid.T, of []T, most int) []T {
	var list []T
	for range rapid.IntRange(0, most).Draw(t, "some") {
		list = append(list, one(t, of))
	}
	return list
}

func generatedService(t *rapid.T, k registry.ServiceKey) *registry.Service {
	s := &registry.Service{
		Host: k.Host, Namespace: k.Namespace, Name: k.Host, Created: time.Unix(int64(rapid.IntRange(1, 3).Draw(t, "age")), 0),
		ExportTo: one(t, generatedExports), Addresses: some(t, []string{"10.0.0.1", "10.0.0.2", "10.0.0.0/16", "fd00::1"}, 2),
		Resolution: one(t, []registry.Resolution{registry.ClientSide, registry.ClientSide, registry.ClientSide, registry.DNS,
			registry.Passthrough, registry.DynamicDNS}),
	}
	slices.Sort(s.Addresses)
	s.Addresses = slices.Compact(s.Addresses)
	seen := map[string]bool{}
	for _, p := range some(t, generatedPorts, 3) {
		if !seen[p.Name] {
			seen[p.Name] = true
			s.Ports = append(s.Ports, p)
		}
	}
	switch rapid.IntRange(0, 7).Draw(t, "sort") {
	case 0:
		s.Headless, s.Resolution, s.Addresses, s.Selector = true, registry.Passthrough, nil, map[string]string{"app": "web"}
	case 1, 2:
		s.Resolution, s.ExternalName, s.Addresses = registry.Alias, one(t, generatedHosts), nil
	case 3:
		s.Addresses, s.AutoAddress = nil, []string{"10.0.0.2"}
	default:
		if chance(t, 2) {
			s.Selector = map[string]string{"app": "web"}
		}
	}
	return s
}

func generatedEndpoints(t *rapid.T, s *registry.Service) []*registry.Endpoint {
	var list []*registry.Endpoint
	if s == nil || len(s.Ports) == 0 {
		return nil
	}
	for range rapid.IntRange(0, 2).Draw(t, "endpoints") {
		list = append(list, &registry.Endpoint{
			Address: one(t, []string{"10.1.0.1", "10.1.0.2", "10.0.0.1"}), Port: 8080, ServicePort: one(t, s.Ports).Name,
			Cluster: one(t, []string{"Kubernetes", "Kubernetes", "other"}), Weight: one(t, []uint32{0, 5}),
			Identity: one(t, []string{"spiffe://cluster.local/ns/a/sa/a", "spiffe://cluster.local/ns/a/sa/b"}),
			TLSMode:  one(t, []string{"", "istio"}), HealthKnown: true, SameCluster: chance(t, 3),
		})
	}
	slices.SortFunc(list, registry.CompareEndpoints)
	return list
}

var generatedKeys = []kinds.Key{
	{Kind: kinds.VirtualService, Namespace: "a", Name: "v1"},
	{Kind: kinds.VirtualService, Namespace: "a", Name: "v2"},
	{Kind: kinds.VirtualService, Namespace: "b", Name: "v1"},
	{Kind: kinds.VirtualService, Namespace: "b", Name: "v3"},
	{Kind: kinds.VirtualService, Namespace: "a", Name: "part"},
	{Kind: kinds.DestinationRule, Namespace: "a", Name: "r1"},
	{Kind: kinds.DestinationRule, Namespace: "a", Name: "r2"},
	{Kind: kinds.DestinationRule, Namespace: "b", Name: "r1"},
	{Kind: kinds.DestinationRule, Namespace: "istio-system", Name: "r1"},
	{Kind: kinds.Sidecar, Namespace: "a", Name: "s"},
	{Kind: kinds.Sidecar, Namespace: "b", Name: "s"},
	{Kind: kinds.PeerAuthentication, Namespace: "a", Name: "p"},
	{Kind: kinds.PeerAuthentication, Namespace: "istio-system", Name: "p"},
	{Kind: kinds.AuthorizationPolicy, Namespace: "a", Name: "p"},
	{Kind: kinds.AuthorizationPolicy, Namespace: "istio-system", Name: "p"},
	{Kind: kinds.RequestAuthentication, Namespace: "b", Name: "p"},
	{Kind: kinds.Gateway, Namespace: "istio-system", Name: "gw"},
	{Kind: kinds.Gateway, Namespace: "istio-system", Name: "gw2"},
}

// generatedTargets are services of generated worlds, which may be there or not.
var generatedTargets = []*typev1beta1.PolicyTargetReference{{Kind: "Service", Name: generatedHosts[0]},
	{Kind: "Service", Name: generatedHosts[2]}}

// generatedCredentials are what Secrets and ConfigMaps of generated worlds hold.
var generatedCredentials = []any{
	&credentials.Credential{Certificate: &credentials.Certificate{Chain: []byte("1"), Key: []byte("1")}},
	&credentials.Credential{Roots: &credentials.Roots{Certificates: []byte("2")}},
}

// generatedSelector returns a selector of some workloads, or none.
func generatedSelector(t *rapid.T) *typev1beta1.WorkloadSelector {
	if chance(t, 2) {
		return nil
	}
	return &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
}

func generatedObject(t *rapid.T, k kinds.Key) *kinds.Object {
	o := &kinds.Object{Key: k, Created: time.Unix(int64(rapid.IntRange(1, 3).Draw(t, "age")), 0)}
	switch k.Kind {
	case kinds.VirtualService:
		spec := &networkingv1.VirtualService{ExportTo: one(t, generatedExports), Gateways: one(t, [][]string{
			nil, nil, {"mesh"}, {"istio-system/gw"}, {"istio-system/gw"}, {"istio-system/gw", "mesh"}, {"istio-system/gw2", "istio-system/gw"},
		})}
		if o.Name != "part" {
			spec.Hosts = append(some(t, generatedVirtualServiceHosts, 2), one(t, generatedVirtualServiceHosts))
		}
		for range rapid.IntRange(0, 2).Draw(t, "routes") {
			h := &networkingv1alpha3.HTTPRoute{Timeout: durationpb.New(time.Duration(rapid.IntRange(1, 2).Draw(t, "timeout")) * time.Second)}
			if d := (&networkingv1alpha3.Destination{Host: one(t, append(slices.Clip(generatedHosts), "web"))}); o.Name != "part" && chance(t, 4) {
				h = &networkingv1alpha3.HTTPRoute{Delegate: &networkingv1alpha3.Delegate{Name: "part", Namespace: "a"}}
			} else {
				if chance(t, 2) {
					d.Port = &networkingv1alpha3.PortSelector{Number: 80}
				}
				h.Route = []*networkingv1alpha3.HTTPRouteDestination{{Destination: d}}
			}
			switch rapid.IntRange(0, 7).Draw(t, "match") {
			case 0, 1:
				h.Match = []*networkingv1alpha3.HTTPMatchRequest{{SourceLabels: map[string]string{"app": "web"}}}
			case 2:
				h.Match = []*networkingv1alpha3.HTTPMatchRequest{{Port: 9000}, {Gateways: []string{"istio-system/gw2"}}}
			}
			spec.Http = append(spec.Http, h)
		}
		if o.Name != "part" && chance(t, 3) {
			to := func() []*networkingv1alpha3.RouteDestination {
				var list []*networkingv1alpha3.RouteDestination
				for _, h := range append(some(t, generatedHosts, 1), one(t, generatedHosts)) {
					list = append(list, &networkingv1alpha3.RouteDestination{Destination: &networkingv1alpha3.Destination{Host: h}, Weight: 50})
				}
				return list
			}
			spec.Tls = []*networkingv1alpha3.TLSRoute{{Match: []*networkingv1alpha3.TLSMatchAttributes{{SniHosts: some(t,
				generatedVirtualServiceHosts, 2)}}, Route: to()}}
			spec.Tcp = []*networkingv1alpha3.TCPRoute{{Route: to()}}
			if chance(t, 2) {
				matches := []*networkingv1alpha3.L4MatchAttributes{{Port: 9000, DestinationSubnets: []string{"10.0.0.0/16", "10.1.2.3"}}}
				spec.Tcp = append([]*networkingv1alpha3.TCPRoute{{Match: matches, Route: to()}}, spec.Tcp...)
				spec.Tls[0].Match[0].SourceLabels = map[string]string{"app": "web"}
			}
		}
		o.Spec = spec
	case kinds.DestinationRule:
		spec := &networkingv1.DestinationRule{Host: one(t, slices.Concat(generatedVirtualServiceHosts, generatedHosts)),
			ExportTo: one(t, generatedExports)}
		if chance(t, 2) {
			spec.TrafficPolicy = &networkingv1alpha3.TrafficPolicy{
				ConnectionPool: &networkingv1alpha3.ConnectionPoolSettings{Tcp: &networkingv1alpha3.ConnectionPoolSettings_TCPSettings{
					MaxConnectionDuration: durationpb.New(time.Duration(rapid.IntRange(1, 2).Draw(t, "longest")) * time.Hour),
				}},
			}
		}
		if chance(t, 3) {
			spec.TrafficPolicy = &networkingv1alpha3.TrafficPolicy{
				LoadBalancer: &networkingv1alpha3.LoadBalancerSettings{LbPolicy: &networkingv1alpha3.LoadBalancerSettings_ConsistentHash{
					ConsistentHash: &networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB{
						HashKey: &networkingv1alpha3.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true},
					},
				}},
			}
		}
		if chance(t, 4) {
			spec.TrafficPolicy = &networkingv1alpha3.TrafficPolicy{Tls: &networkingv1alpha3.ClientTLSSettings{
				Mode: networkingv1alpha3.ClientTLSSettings_MUTUAL, CredentialName: one(t, []string{"one", "configmap://istio-system/two"}),
			}}
		}
		for _, name := range some(t, []string{"v1", "v2"}, 2) {
			spec.Subsets = append(spec.Subsets, &networkingv1alpha3.Subset{Name: name, Labels: map[string]string{"version": name}})
		}
		if chance(t, 4) {
			spec.WorkloadSelector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "web"}}
		}
		o.Spec = spec
	case kinds.Sidecar:
		o.Spec = one(t, generatedSidecars)
	case kinds.PeerAuthentication:
		o.Spec = &securityv1.PeerAuthentication{Mtls: &securityv1beta1.PeerAuthentication_MutualTLS{Mode: one(t,
			[]securityv1beta1.PeerAuthentication_MutualTLS_Mode{1, 3})}}
	case kinds.AuthorizationPolicy:
		selector := generatedSelector(t)
		spec := one(t, []*securityv1.AuthorizationPolicy{customPolicy, {}, {Action: securityv1.AuthorizationPolicy_DENY}}).DeepCopy()
		spec.Selector = selector
		if chance(t, 3) {
			spec.Selector, spec.TargetRefs = nil, generatedTargets
		}
		if chance(t, 4) {
			o.Annotations = map[string]string{kinds.AnnotationDryRun: "true"}
		}
		o.Spec = spec
	case kinds.RequestAuthentication:
		spec := &securityv1.RequestAuthentication{Selector: generatedSelector(t)}
		if chance(t, 3) {
			spec.Selector, spec.TargetRefs = nil, generatedTargets
		}
		o.Spec = spec
	case kinds.Gateway:
		spec := &networkingv1.Gateway{}
		for range rapid.IntRange(1, 3).Draw(t, "servers") {
			server := &networkingv1alpha3.Server{
				Port:  &networkingv1alpha3.Port{Number: one(t, []uint32{80, 80, 9000}), Protocol: "HTTP", Name: "http"},
				Hosts: append(some(t, generatedServers, 2), one(t, generatedServers)),
			}
			if chance(t, 3) {
				server.Tls = &networkingv1alpha3.ServerTLSSettings{HttpsRedirect: true}
			}
			if chance(t, 6) {
				server.Port = &networkingv1alpha3.Port{Number: 15443, Protocol: "TLS", Name: "tls"}
				server.Tls = &networkingv1alpha3.ServerTLSSettings{Mode: networkingv1alpha3.ServerTLSSettings_AUTO_PASSTHROUGH}
			}
			if chance(t, 3) {
				server.Port = &networkingv1alpha3.Port{Number: one(t, []uint32{443, 9000}), Protocol: one(t, []string{"HTTPS", "TLS", "TCP"}),
					Name: one(t, []string{"tls", "other"})}
				if server.Tls = nil; server.Port.Protocol != "TCP" {
					server.Tls = &networkingv1alpha3.ServerTLSSettings{Mode: one(t, []networkingv1alpha3.ServerTLSSettings_TLSmode{0, 1, 2, 4}),
						CredentialName: one(t, []string{"one", "two"})}
				}
			}
			spec.Servers = append(spec.Servers, server)
		}
		o.Spec = spec
	}
	return o
}

// generatedWorlds draws the steps of a history. The first step is a world.
func generatedWorlds() *rapid.Generator[[]generatedStep] {
	return rapid.Custom(func(t *rapid.T) []generatedStep {
		var steps []generatedStep
		now := map[registry.ServiceKey]*registry.Service{}
		last := 0
		for i := range rapid.IntRange(2, 8).Draw(t, "steps") {
			s := generatedStep{map[registry.ServiceKey]*registry.Service{}, map[registry.ServiceKey][]*registry.Endpoint{},
				map[kinds.Key]*kinds.Object{}, last}
			n := rapid.IntRange(1, 2).Draw(t, "changes")
			if i == 0 {
				n = rapid.IntRange(4, 25).Draw(t, "world")
			}
			for range n {
				switch rapid.IntRange(0, 9).Draw(t, "what") {
				case 0, 1, 2, 3:
					k := registry.ServiceKey{Namespace: one(t, []string{"a", "b"}), Host: one(t, generatedHosts)}
					now[k], s.endpoints[k] = nil, nil
					if !chance(t, 4) {
						now[k] = generatedService(t, k)
						s.endpoints[k] = generatedEndpoints(t, now[k])
					}
					s.services[k] = now[k]
				case 4, 5:
					var there []registry.ServiceKey
					for _, host := range generatedHosts {
						for _, ns := range []string{"a", "b"} {
							if k := (registry.ServiceKey{Namespace: ns, Host: host}); now[k] != nil {
								there = append(there, k)
							}
						}
					}
					if len(there) > 0 {
						k := one(t, there)
						s.endpoints[k] = generatedEndpoints(t, now[k])
					}
				case 6:
					if chance(t, 3) {
						s.mesh = rapid.IntRange(0, 2).Draw(t, "mesh")
					}
				default:
					k := one(t, generatedKeys)
					if s.objects[k] = nil; !chance(t, 4) {
						s.objects[k] = generatedObject(t, k)
					}
				}
			}
			last = s.mesh
			steps = append(steps, s)
		}
		return steps
	})
}

func generatedProxies() map[string]*node.Proxy {
	all := map[string]*node.Proxy{}
	for _, name := range []string{"a", "b", "c", "none", "six"} {
		p := *testProxies()["web"]
		p.Name, p.Namespace = name+"-0", name
		if len(name) > 1 {
			p.Namespace = "a"
		}
		p.ID, p.Domain, p.IPs = p.Name+"."+p.Namespace, p.Namespace+".svc.cluster.local", []string{"10.9.0.1"}
		switch name {
		case "a":
			p.Labels, p.SelfDiscovery = map[string]string{"app": "web"}, true
		case "b":
			p.IPs, p.SelfDiscovery = []string{"10.1.0.1"}, true // an endpoint of generated services
		case "c":
			p.DNSCapture, p.DNSAutoAllocate = true, true
		case "none":
			p.Interception = node.None
		case "six":
			p.IPs = []string{"fd09::1", "10.9.0.2"}
		}
		all[name] = &p
	}
	gw := *testProxies()["gateway"]
	all["gateway"] = &gw
	return all
}
