package translate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/protocols"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// BenchmarkGatewayRoute measures a change of one route of a gateway, from the commit to the virtual hosts to send.
func BenchmarkGatewayRoute(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("%d routes", n), func(b *testing.B) {
			build := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Catalog: catalog.Features()})
			build.Apply([]kinds.Change{kubeObject(kinds.Gateway, "istio-system", "gw", &networkingv1.Gateway{Servers: []*networkingv1alpha3.Server{
				{Port: &networkingv1alpha3.Port{Number: 8080, Protocol: "HTTP", Name: "http"}, Hosts: []string{"*"}},
			}})})
			services := map[registry.ServiceKey]*registry.Service{}
			for i := range 1000 {
				s := &registry.Service{
					Host: fmt.Sprintf("svc-%d.a.svc.cluster.local", i), Namespace: "a", Name: fmt.Sprintf("svc-%d", i),
					Ports: []registry.Port{{Name: "http", Number: 80, Protocol: protocols.HTTP}},
				}
				services[s.Key()] = s
			}
			build.ApplyRegistry(registry.Changes{Services: services})
			route := func(i int, mark string) kinds.Change {
				return kubeObject(kinds.VirtualService, fmt.Sprintf("routes-%d", i%50), fmt.Sprintf("route-%d", i), &networkingv1.VirtualService{
					Hosts: []string{fmt.Sprintf("route-%d.example.com", i)}, Gateways: []string{"istio-system/gw"},
					Http: []*networkingv1alpha3.HTTPRoute{{
						Headers: &networkingv1alpha3.Headers{Response: &networkingv1alpha3.Headers_HeaderOperations{Set: map[string]string{"x-bench": mark}}},
						Route: []*networkingv1alpha3.HTTPRouteDestination{{
							Destination: &networkingv1alpha3.Destination{Host: fmt.Sprintf("svc-%d.a.svc.cluster.local", i%1000)},
						}},
					}},
				})
			}
			for i := range n {
				build.Apply([]kinds.Change{route(i, "seed")})
			}
			t := newTranslator(1 << 20)
			gateway := *testProxies()["gateway"]
			var names envoy.NameInterner
			list := names.Intern([]string{"http.8080"})
			var last *envoy.Set
			push := func() (changed int) {
				s := build.Commit(time.Time{})
				t.Prepare(s)
				got, err := t.Get(s, t.ResolveCohort(s, &gateway), envoy.RouteType, list)
				must.Succeed(b, err)
				_, hosts := got.Shared.Divided()
				envoy.Differ(last, hosts, func(_, _ *envoy.Resource) { changed++ })
				last = hosts
				return changed
			}
			if got := push(); got != n {
				b.Fatalf("%d virtual hosts", got)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				build.Apply([]kinds.Change{route(i%n, fmt.Sprint(i))})
				if got := push(); got != 1 {
					b.Fatalf("%d virtual hosts changed", got)
				}
			}
		})
	}
}

// BenchmarkGatewayServers measures all that a gateway is sent that has many servers on one port, each with a host and a
// VirtualService of its own. The time for each server is what should not grow.
func BenchmarkGatewayServers(b *testing.B) {
	for use := range gatewayServers() {
		for _, n := range []int{250, 1000, 4000} {
			b.Run(fmt.Sprintf("%s/%d", use, n), func(b *testing.B) {
				s := newWorld(b, mesh.Default()).apply(documents(b, gatewayServers()[use](n, 0))...)
				for b.Loop() {
					var names envoy.NameInterner
					translateAll(b, newTranslator(1<<20), s, &names)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "us/server")
			})
		}
	}
}

// gatewayServers returns writers of n servers on one port, each with a VirtualService of its own, in two states.
func gatewayServers() map[string]func(n, state int) string {
	write := func(name, port, server, route string) func(n, state int) string {
		return func(n, state int) string {
			var b strings.Builder
			for i := range n {
				if i == 0 || name == "each" {
					fmt.Fprintf(&b, "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s%d, namespace: "+
						"istio-system}\nspec:\n  servers:\n", name, i)
				}
				fmt.Fprintf(&b, "  - {hosts: [h%[1]d.example.com, '*.w%[1]d.example.com'], port: {number: %[2]s, name: p%[1]d, %[3]s}\n", i,
					port, server)
			}
			for i := range n {
				gateway := name + "0"
				if name == "each" {
					gateway = fmt.Sprintf("each%d", i)
				}
				fmt.Fprintf(&b, "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %[2]s-%[1]d, namespace: "+
					"istio-system}\n"+
					"spec: {hosts: [h%[1]d.example.com, a.w%[1]d.example.com], gateways: [%[3]s], %[4]s route: [{destination: {host: "+
					"s%[5]d.n%[5]d.svc.cluster.local}}]}]}\n",
					i, name, gateway, strings.ReplaceAll(route, "HOST", fmt.Sprintf("h%d.example.com", i)), state)
			}
			return b.String()
		}
	}
	return map[string]func(n, state int) string{
		"HTTP":        write("http", "8443", "protocol: HTTP}", "http: [{"),
		"Gateways":    write("each", "8444", "protocol: HTTP}", "http: [{"),
		"HTTPS":       write("https", "8445", "protocol: HTTPS}, tls: {mode: SIMPLE, credentialName: x}", "http: [{"),
		"PASSTHROUGH": write("pass", "8446", "protocol: TLS}, tls: {mode: PASSTHROUGH}", "tls: [{match: [{sniHosts: [HOST]}],"),
	}
}

func kubeObject(kind *kinds.Kind, ns, name string, spec any) kinds.Change {
	k := kinds.Key{Kind: kind, Namespace: ns, Name: name}
	return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Created: time.Unix(1, 0), Spec: spec}}
}
