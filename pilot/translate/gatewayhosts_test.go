package translate_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/registry"
)

// generatedGatewayWorlds draws histories for gateways: servers that conflict, and VirtualServices that conflict.
func generatedGatewayWorlds() *rapid.Generator[[]generatedStep] {
	objects := slices.DeleteFunc(slices.Clone(generatedKeys), func(k kinds.Key) bool {
		return k.Kind != kinds.VirtualService && k.Kind != kinds.DestinationRule || k.Namespace == "istio-system"
	})
	gateways := slices.DeleteFunc(slices.Clone(generatedKeys), func(k kinds.Key) bool { return k.Kind != kinds.Gateway })
	return rapid.Custom(func(t *rapid.T) []generatedStep {
		var steps []generatedStep
		for i := range rapid.IntRange(3, 10).Draw(t, "steps") {
			s := generatedStep{map[registry.ServiceKey]*registry.Service{}, map[registry.ServiceKey][]*registry.Endpoint{},
				map[kinds.Key]*kinds.Object{}, 0}
			n := 1
			if i == 0 {
				n = rapid.IntRange(1, 12).Draw(t, "world")
				for _, k := range gateways {
					s.objects[k] = generatedObject(t, k)
				}
			}
			for range n {
				switch {
				case chance(t, 3):
					k := registry.ServiceKey{Namespace: "a", Host: one(t, generatedHosts)}
					if s.services[k] = nil; !chance(t, 4) {
						s.services[k] = generatedService(t, k)
					}
				default:
					k := one(t, objects)
					if s.objects[k] = nil; !chance(t, 4) {
						s.objects[k] = generatedObject(t, k)
					}
				}
			}
			steps = append(steps, s)
		}
		return steps
	})
}

// TestIncrementalGatewaySetsMatchFreshOnes is TestIncrementalSetsMatchFreshOnes for gateways: their virtual hosts
// depend on one another in other ways.
func TestIncrementalGatewaySetsMatchFreshOnes(t *testing.T) {
	histories.FewerWithRace(t)
	refs, gen := &references{seen: map[string][]string{}}, generatedGatewayWorlds()
	who := slices.Index(slices.Sorted(maps.Keys(generatedProxies())), "gateway")
	rapid.Check(t, func(t *rapid.T) {
		skips := rapid.Uint16().Draw(t, "skips")
		if d := checkHistory(t, refs, gen.Draw(t, "steps"), func(step, w int) bool { return w == who && skips>>step&1 == 0 }, nil); d != "" {
			t.Fatal(d)
		}
	})
}

// gatewayHostCases are gateways with ports of their own. A server is its hosts, after "redirect" where it redirects to
// https. A VirtualService is its hosts, after "b:" where it is in namespace b. The real istiod made the wanted virtual
// hosts of them, except for catch-all routes behind others.
var gatewayHostCases = []struct {
	name     string
	servers  []string
	virtual  []string
	want     []string // name, domains and VirtualServices of the routes
	gateways int      // the servers belong to so many Gateways in turn, and the VirtualServices are bound to all; 0 is 1
}{
	{name: "one host for many", servers: []string{"a.com b.com"}, virtual: []string{"*"}, want: []string{"a.com: a.com b.com; v0"}},
	{name: "a pattern for some", servers: []string{"a.com b.com c.org *.x.com"}, virtual: []string{"*.com"},
		want: []string{"a.com: a.com b.com *.x.com; v0"}},
	{
		name: "namespaces", servers: []string{"b/a.com b.com a/c.com"}, virtual: []string{"*", "b:*"},
		want: []string{"a.com: a.com; v1", "b.com: b.com; v0", "c.com: c.com; v0"},
	},
	{name: "of any namespace", servers: []string{"*/a.com ./b.com a/*"}, virtual: []string{"*", "b:*"},
		want: []string{"*: *; v0", "a.com: a.com; v0"}},
	{name: "servers that share a port", servers: []string{"a.com", "b.com", "a.com c.com"}, virtual: []string{"*", "b.com c.com"},
		want: []string{"a.com: a.com; v0", "b.com: b.com c.com; v0"}},
	{name: "the most specific host comes first", servers: []string{"a.com *.b.com"}, virtual: []string{"*.com a.com x.b.com"},
		want: []string{"x.b.com: x.b.com a.com *.b.com; v0"}},
	{name: "exact hosts come first", servers: []string{"*"}, virtual: []string{"q.org *.long.org zz.com *.a.org aaaa.com"},
		want: []string{"aaaa.com: aaaa.com zz.com q.org *.long.org *.a.org; v0"}},
	{
		name: "patterns within patterns", servers: []string{"*.foo.com *.a.foo.com"}, virtual: []string{"*.a.foo.com", "q.a.foo.com *.foo.com"},
		want: []string{"*.a.foo.com: *.a.foo.com; v0", "q.a.foo.com: q.a.foo.com *.foo.com; v1"},
	},
	{name: "patterns of parts of names", servers: []string{"*-x.com a-x.com"}, virtual: []string{"*-x.com b-x.com", "*.com *"},
		want: []string{"a-x.com: a-x.com *-x.com; v0", "b-x.com: b-x.com; v0"}},
	{
		name: "only where all are redirected do they share", servers: []string{"redirect a.com", "b.com", "redirect c.com"},
		virtual: []string{"a.com b.com c.com"},
		want:    []string{"a.com: a.com; v0 TLS", "b.com: b.com; v0", "c.com: c.com; v0 TLS"},
	},
	{name: "all redirected", servers: []string{"redirect a.com b.com"}, virtual: []string{"*"}, want: []string{"a.com: a.com b.com; v0 TLS"}},
	{
		name: "routed by another server", servers: []string{"b.com c.com", "redirect a.com b.com"}, virtual: []string{"b.com c.com"},
		want: []string{"a.com: a.com; TLS", "b.com: b.com; v0 TLS", "c.com: c.com; v0"},
	},
	{name: "redirected without routes", servers: []string{"redirect z.com aa.com", "redirect y.com"}, virtual: []string{"aa.com"},
		want: []string{"aa.com: aa.com; v0 TLS", "y.com: y.com z.com; TLS"}},
	{name: "as they are written", servers: []string{"redirect a/a.com */c.com"}, want: []string{"a/a.com: a/a.com c.com; TLS"}},
	{name: "any host of any namespace is all", servers: []string{"redirect a.com */* a/*"}, virtual: []string{"b.com"},
		want: []string{"*: *; TLS", "b.com: b.com; v0 TLS"}},
	{name: "twice", servers: []string{"redirect a.com a.com"}, want: []string{"a.com: a.com; TLS"}},
	{name: "of two that redirect a host the first counts", servers: []string{"redirect a.com", "redirect a.com y.com"},
		virtual: []string{"y.com"}, want: []string{"a.com: a.com; TLS"}},
	{name: "no routes", servers: []string{"a.com"}, virtual: []string{"nowhere a.com"}, want: []string{"blackhole: *;"}},
	{name: "no routes, but redirected", servers: []string{"redirect a.com c.com"}, virtual: []string{"nowhere a.com"},
		want: []string{"a.com: a.com c.com; TLS"}},
	{name: "no routes below a pattern", servers: []string{"redirect *.com"}, virtual: []string{"nowhere a.com"},
		want: []string{"*.com: *.com; TLS"}},
	{name: "what has no routes sets nobody apart", servers: []string{"*"}, virtual: []string{"a.com b.com", "nowhere a.com"},
		want: []string{"a.com: a.com b.com; v0"}},
	{name: "by way of different Gateways", servers: []string{"a.com", "b.com"}, virtual: []string{"*"}, gateways: 2,
		want: []string{"a.com: a.com; v0", "b.com: b.com; v0"}},
}

func TestGatewayVirtualHosts(t *testing.T) {
	for _, c := range gatewayHostCases {
		t.Run(c.name, func(t *testing.T) {
			var y strings.Builder
			gateways := max(1, c.gateways)
			for g := range gateways {
				y.WriteString("---\napiVersion: networking.istio.io/v1\nkind: Gateway\n" +
					"metadata: {name: g" + string(rune('0'+g)) + ", namespace: istio-system}\n" +
					"spec:\n  selector: {istio: ingress}\n  servers:\n")
				for i, s := range c.servers {
					if i%gateways == g {
						hosts, redirect := strings.CutPrefix(s, "redirect ")
						y.WriteString("  - {port: {number: 7000, name: http-" + string(rune('0'+i)) + ", protocol: HTTP}, hosts: ['" +
							strings.ReplaceAll(hosts, " ", "','") + "']")
						if redirect {
							y.WriteString(", tls: {httpsRedirect: true}")
						}
						y.WriteString("}\n")
					}
				}
			}
			for i, v := range c.virtual {
				hosts, other := strings.CutPrefix(v, "b:")
				hosts, nowhere := strings.CutPrefix(hosts, "nowhere ")
				ns, match := "a", ""
				if other {
					ns = "b"
				}
				if nowhere {
					match = "match: [{port: 9}], "
				}
				y.WriteString("---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n" +
					"metadata: {name: v" + string(rune('0'+i)) + ", namespace: " + ns + "}\n" +
					"spec:\n  gateways: [istio-system/g0, istio-system/g1]\n" +
					"  hosts: ['" + strings.ReplaceAll(hosts, " ", "','") + "']\n  http: [{" + match +
					"route: [{destination: {host: web, port: {number: 80}}}]}]\n")
			}
			s := newWorld(t, mesh.Default()).apply(objects(t, "world.yaml", []byte(y.String()))...)
			var got []string
			for _, h := range hostsOf(t, s, newTranslator(0), "http.7000") {
				line := strings.TrimSuffix(h.Name, ":7000") + ": " + strings.Join(h.Domains, " ") + ";"
				for _, r := range h.Routes {
					config := r.Metadata.FilterMetadata["istio"].Fields["config"].GetStringValue()
					line += " " + config[strings.LastIndexByte(config, '/')+1:]
				}
				if h.RequireTls == routev3.VirtualHost_ALL {
					line += " TLS"
				}
				got = append(got, line)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestGatewayFollowsDestinations: a gateway's routes follow changes of their destinations' services and
// DestinationRules, and no other virtual hosts are made again.
func TestGatewayFollowsDestinations(t *testing.T) {
	const gateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: istio-system}
spec: {selector: {istio: ingress}, servers: [{port: {number: 7000, name: http, protocol: HTTP}, hosts: ["*"]}]}
`
	virtual := func(host, service string) string {
		return "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\n" +
			"metadata: {name: " + service + ", namespace: a}\n" +
			"spec: {hosts: [" + host + "], gateways: [istio-system/gw], http: [{route: [{destination: {host: " + service + "}}]}]}\n"
	}
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	before := hostsOf(t, w.apply(objects(t, "world.yaml", []byte(gateway+virtual("a.com", "web")+virtual("b.com", "api")))...), tr,
		"http.7000")
	for i, c := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: a}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 9000}]}\n",
		"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: web, namespace: a}\n" +
			"spec: {host: web, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}\n",
	} {
		_, misses := tr.Stats()
		s := w.apply(objects(t, "change.yaml", []byte(c))...)
		after := hostsOf(t, s, tr, "http.7000")
		if _, now := tr.Stats(); now-misses != 2 { // the virtual host and the route configuration
			t.Errorf("change %d: %d were made", i, now-misses)
		}
		if proto.Equal(before[0], after[0]) || !proto.Equal(before[1], after[1]) {
			t.Errorf("change %d: before %v, after %v", i, before, after)
		}
		before = after
	}
}

// hostsOf returns the virtual hosts of a gateway's route configuration.
func hostsOf(t *testing.T, s *snapshot.Snapshot, tr *translate.Translator, route string) []*routev3.VirtualHost {
	gw := *testProxies()["gateway"]
	gw.Labels = map[string]string{"istio": "ingress"}
	return decode(t, tr.Resource(s, tr.ResolveCohort(s, &gw), envoy.RouteType, route)).(*routev3.RouteConfiguration).VirtualHosts
}
