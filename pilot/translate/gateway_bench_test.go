package translate_test

import (
	"fmt"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/registry"
)

// BenchmarkGatewayRoute measures a change of one route of a gateway, from the commit to the virtual hosts to send.
func BenchmarkGatewayRoute(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("%d routes", n), func(b *testing.B) {
			build := snapshot.NewBuilder(snapshot.Options{Domain: "cluster.local", Mesh: mesh.Default(), Kinds: catalog.Features().Kinds()})
			build.Apply([]kinds.Change{kubeObject(kinds.Gateway, "istio-system", "gw", &networkingv1.Gateway{Servers: []*networkingv1alpha3.Server{
				{Port: &networkingv1alpha3.Port{Number: 8080, Protocol: "HTTP", Name: "http"}, Hosts: []string{"*"}},
			}})})
			services := map[registry.ServiceKey]*registry.Service{}
			for i := range 1000 {
				s := &registry.Service{
					Host: fmt.Sprintf("svc-%d.a.svc.cluster.local", i), Namespace: "a", Name: fmt.Sprintf("svc-%d", i),
					Ports: []registry.Port{{Name: "http", Number: 80, Protocol: registry.HTTP}},
				}
				services[s.Key()] = s
			}
			build.ApplyRegistry(registry.Changes{Services: services})
			route := func(i int, mark string) kinds.Change {
				return kubeObject(kinds.VirtualService, fmt.Sprintf("routes-%d", i%50), fmt.Sprintf("route-%d", i), &networkingv1.VirtualService{
					Hosts: []string{fmt.Sprintf("route-%d.example.com", i)}, Gateways: []string{"istio-system/gw"},
					Http: []*networkingv1alpha3.HTTPRoute{{
						Headers: &networkingv1alpha3.Headers{Response: &networkingv1alpha3.Headers_HeaderOperations{Set: map[string]string{"x-bench": mark}}},
						Route:   []*networkingv1alpha3.HTTPRouteDestination{{Destination: &networkingv1alpha3.Destination{Host: fmt.Sprintf("svc-%d.a.svc.cluster.local", i%1000)}}},
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
				if err != nil {
					b.Fatal(err)
				}
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

func kubeObject(kind *kinds.Kind, ns, name string, spec any) kinds.Change {
	k := kinds.Key{Kind: kind, Namespace: ns, Name: name}
	return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Created: time.Unix(1, 0), Spec: spec}}
}
