package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"

	networkingv1 "istio.io/api/networking/v1"
)

// unlinked is the types on the wire whose message this program does not link.
var unlinked = []string{"type.googleapis.com/stats.PluginConfig"}

// walk calls visit for a message and everything inside it, also inside its Anys.
func walk(t tb, m protoreflect.Message, visit func(proto.Message)) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		visit(a)
		if slices.Contains(unlinked, a.TypeUrl) {
			return
		}
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Fatalf("%s: %v", a.TypeUrl, err)
		}
		walk(t, inner.ProtoReflect(), visit)
		return
	}
	visit(m.Interface())
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
					walk(t, e.Message(), visit)
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				walk(t, v.List().Get(i).Message(), visit)
			}
		default:
			walk(t, v.Message(), visit)
		}
		return true
	})
}

// valid checks a resource, and what is inside its Anys, against Envoy's validation rules.
func valid(t tb, where string, r *envoy.Resource) proto.Message {
	m := decode(t, r)
	check := func(m proto.Message) {
		if v, ok := m.(interface{ ValidateAll() error }); ok {
			if err := v.ValidateAll(); err != nil {
				t.Fatalf("%s %s: %v", where, r.Name, err)
			}
		}
	}
	check(m)
	walk(t, m.ProtoReflect(), func(inner proto.Message) {
		if a, ok := inner.(*anypb.Any); ok && !slices.Contains(unlinked, a.TypeUrl) {
			if in, err := a.UnmarshalNew(); err == nil {
				check(in)
			}
		}
	})
	return m
}

// referencedClusters returns the clusters to which a resource sends traffic.
func referencedClusters(t tb, m proto.Message) []string {
	var list []string
	walk(t, m.ProtoReflect(), func(m proto.Message) {
		switch m := m.(type) {
		case *tcpv3.TcpProxy:
			if m.GetCluster() != "" {
				list = append(list, m.GetCluster())
			}
			for _, w := range m.GetWeightedClusters().GetClusters() {
				list = append(list, w.Name)
			}
		case *routev3.RouteAction:
			if m.GetCluster() != "" {
				list = append(list, m.GetCluster())
			}
			for _, w := range m.GetWeightedClusters().GetClusters() {
				list = append(list, w.Name)
			}
			for _, p := range m.RequestMirrorPolicies {
				list = append(list, p.Cluster)
			}
		}
	})
	return list
}

// checkReferences checks all that a proxy is sent against Envoy's validation rules, and checks that references are
// closed. What leads to a missing cluster does so only where a VirtualService, or the egress proxy of a Sidecar, names
// its host: open reports that.
func checkReferences(t tb, who string, c configByType, open func(host string) bool) {
	missing := func(where, name string) {
		if c["cds"][name] != nil || name == names.UnknownService {
			return
		}
		if n, ok := names.ParseCluster(name); ok && open(n.Host) {
			return
		}
		t.Fatalf("%s: %s names cluster %s, which is not there", who, where, name)
	}
	for _, r := range c["cds"] {
		m := valid(t, who, r).(*clusterv3.Cluster)
		if m.Name != r.Name {
			t.Fatalf("%s: cluster %s is called %s", who, r.Name, m.Name)
		}
		if m.GetType() == clusterv3.Cluster_EDS && c["eds"][m.GetEdsClusterConfig().GetServiceName()] == nil {
			t.Fatalf("%s: cluster %s has no assignment", who, r.Name)
		}
	}
	for _, r := range c["eds"] {
		valid(t, who, r)
	}
	for _, r := range c["lds"] {
		m := valid(t, who, r)
		for _, name := range routeNames(t, m) {
			if rc := c["rds"][name]; rc == nil || rc.Hosts.Len() == 0 && !strings.HasPrefix(name, "http.") {
				t.Fatalf("%s: listener %s has no routes %s", who, r.Name, name)
			}
		}
		for _, name := range referencedClusters(t, m) {
			missing("listener "+r.Name, name)
		}
	}
	for _, r := range c["rds"] {
		m := valid(t, who, r).(*routev3.RouteConfiguration)
		taken := map[string]string{}
		for _, h := range m.VirtualHosts {
			for _, d := range h.Domains {
				if d = strings.ToLower(d); taken[d] != "" {
					t.Fatalf("%s: routes %s: domain %s is in %s and %s", who, r.Name, d, taken[d], h.Name)
				}
				taken[d] = h.Name
			}
		}
		for _, name := range referencedClusters(t, m) {
			missing("routes "+r.Name, name)
		}
	}
}

// routedHosts returns a function that reports whether VirtualServices of a world send traffic to a host.
func routedHosts(s *snapshot.Snapshot) func(string) bool {
	hosts := map[string]bool{}
	for _, o := range s.AllObjects(kinds.VirtualService) {
		for h := range scope.Destinations(o.Spec.(*networkingv1.VirtualService)) {
			hosts[names.FQDN(h, o.Namespace, s.Domain)] = true
		}
	}
	for _, o := range s.AllObjects(kinds.Sidecar) {
		hosts[o.Spec.(*networkingv1.Sidecar).GetOutboundTrafficPolicy().GetEgressProxy().GetHost()] = true
	}
	return func(h string) bool { return hosts[h] }
}

// TestResourcesAreValidAndClosed checks every proxy of every world of the reference, and of random worlds.
func TestResourcesAreValidAndClosed(t *testing.T) {
	histories.NoRace(t)
	t.Parallel()
	for _, c := range referenceCases(t) {
		s := c.world(t).apply(c.objects...)
		tr := newTranslator(0)
		for who, p := range referenceNodes(t, c) {
			checkReferences(t, c.name+" "+who, sent(t, tr, s, p), routedHosts(s))
		}
	}
	p, proxies := readPool(t), testProxies()
	rapid.Check(t, func(t *rapid.T) {
		var changes []kinds.Change
		for _, c := range p.start(t) {
			changes = append(changes, c.Change)
		}
		m := rapid.SampledFrom(p.meshes).Draw(t, "mesh")
		s := p.newWorld(t, m, rapid.Bool().Draw(t, "sets")).apply(changes...)
		tr := newTranslator(0)
		who := rapid.SampledFrom(sortedKeys(proxies)).Draw(t, "proxy")
		checkReferences(t, who, sent(t, tr, s, proxies[who]), routedHosts(s))
	})
}

func sortedKeys(m map[string]*node.Proxy) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// TestStockEnvoyGetsNoIstioExtension: an Envoy that lists none of Istio's extensions is sent none of them.
func TestStockEnvoyGetsNoIstioExtension(t *testing.T) {
	histories.NoRace(t)
	p := readPool(t)
	var changes []kinds.Change
	for _, k := range p.keys {
		changes = append(changes, kinds.Change{Key: k, Object: p.versions[k][0]})
	}
	s := newWorld(t, mesh.Default()).apply(changes...)
	tr := newTranslator(1 << 20)
	istio := map[string]bool{} // what Istio's proxies are sent, so that the test sees what it looks for
	for name, who := range testProxies() {
		for _, capabilities := range []node.Capabilities{0, everything} {
			who.Capabilities = capabilities
			for typ, resources := range sent(t, tr, s, who) {
				for _, r := range resources {
					foreign := istioExtensions(t, decode(t, r))
					if capabilities == 0 && foreign != nil {
						t.Errorf("%s: %s %s has %v", name, typ, r.Name, foreign)
					}
					for _, f := range foreign {
						istio[f] = true
					}
				}
			}
		}
	}
	for _, want := range []string{"istio.metadata_exchange", "istio.alpn", "istio-peer-exchange offered",
		"istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig", "io.istio.http.peer_metadata.Config"} {
		if !istio[want] {
			t.Errorf("Istio's own proxies are not sent %s, but %v", want, istio)
		}
	}
}

// istioExtensions returns what stock Envoy does not know.
func istioExtensions(t tb, m proto.Message) []string {
	var list []string
	add := func(name string) {
		if name = strings.TrimPrefix(name, "type.googleapis.com/"); !strings.HasPrefix(name, "envoy.extensions.") &&
			!strings.HasPrefix(name, "envoy.config.") && !strings.HasPrefix(name, "udpa.") &&
			!strings.HasPrefix(name, "google.protobuf.") {
			list = append(list, name)
		}
	}
	walk(t, m.ProtoReflect(), func(m proto.Message) {
		if n, ok := m.(interface{ GetName() string }); ok && strings.HasPrefix(n.GetName(), "istio.") {
			list = append(list, n.GetName())
		}
		switch m := m.(type) {
		case *anypb.Any:
			add(m.TypeUrl)
		case *udpav1.TypedStruct:
			add(m.TypeUrl)
		case *tlsv3.CommonTlsContext:
			if slices.Contains(m.AlpnProtocols, "istio-peer-exchange") {
				list = append(list, "istio-peer-exchange offered")
			}
		}
	})
	return list
}

// TestObjectOrderDoesNotMatter: shuffled objects give the same bytes.
func TestObjectOrderDoesNotMatter(t *testing.T) {
	histories.FewerWithRace(t)
	p, refs, proxies := readPool(t), &references{seen: map[string][]string{}}, testProxies()
	rapid.Check(t, func(t *rapid.T) {
		var changes []kinds.Change
		for _, c := range p.start(t) {
			changes = append(changes, c.Change)
		}
		who := rapid.SampledFrom(sortedKeys(proxies)).Draw(t, "proxy")
		shuffled := rapid.Permutation(changes).Draw(t, "order")
		a := refs.config(t, newTranslator(0), p.newWorld(t, p.meshes[0], true).apply(changes...), proxies[who])
		b := refs.config(t, newTranslator(0), p.newWorld(t, p.meshes[0], true).apply(shuffled...), proxies[who])
		if d := differences(a, b); d != nil {
			t.Fatalf("%s: %s", who, fmt.Sprint(d))
		}
	})
}
