package gatewayapi_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
)

// BenchmarkOneOfMany derives anew what one changed HTTPRoute of 5000 asks for, each with a host of its own.
func BenchmarkOneOfMany(b *testing.B) {
	world := map[kinds.Key]*kinds.Object{}
	add := func(kind *kinds.Kind, name string, spec any) *kinds.Object {
		o := &kinds.Object{Key: kinds.Key{Kind: kind, Namespace: "a", Name: name}, Spec: spec}
		world[o.Key] = o
		return o
	}
	port := gatewayv1.PortNumber(80)
	httpRoute := func(i int) *kinds.Object {
		return add(kinds.HTTPRoute, fmt.Sprintf("r%d", i),
			&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: gatewayv1.HTTPRouteSpec{
				CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}},
				Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("h%d.example.com", i))},
				Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
					BackendObjectReference: gatewayv1.BackendObjectReference{Name: "web", Port: &port},
				}}}}},
			}})
	}
	add(kinds.Service, "web", &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	add(kinds.KubeGateway, "edge", &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "istio", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
	}})
	for i := range 5000 {
		httpRoute(i)
	}
	stage := gatewayapi.New(gatewayapi.Options{Domain: "cluster.local", Limits: limits.Default()})
	in := derive.Input{Mesh: mesh.Default(), Lookup: constant(world)}
	for key, o := range world {
		if key.Kind != kinds.Service {
			in.Changed = append(in.Changed, kinds.Change{Key: key, Object: o})
		}
	}
	config.Sort(in.Changed)
	if d := stage.Derive(in); len(d.Parts) != 10002 { // of routes, hosts, the Gateway and its status
		b.Fatalf("%d parts", len(d.Parts))
	}
	generation := int64(1)
	b.ReportAllocs()
	for b.Loop() {
		o := httpRoute(0)
		o.Generation, generation = generation, generation+1
		in.Changed = []kinds.Change{{Key: o.Key, Object: o}}
		if d := stage.Derive(in); len(d.Parts) != 2 {
			b.Fatalf("%d parts", len(d.Parts))
		}
	}
}

// BenchmarkOneSet derives anew what one changed ListenerSet of 50 asks for, each with 64 listeners, and a route for
// each of these.
func BenchmarkOneSet(b *testing.B) {
	world := objects{}
	set := func(i, generation int) string {
		var listeners []string
		for j := range 64 {
			listeners = append(listeners, fmt.Sprintf("{name: l%d, port: 80, protocol: HTTP, hostname: h%d.s%d.org}", j, j, i))
		}
		return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: s%d, namespace: a, "+
			"generation: %d}\nspec: {parentRef: {name: edge}, listeners: [%s]}", i, generation, strings.Join(listeners, ", "))
	}
	world.put(b, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: a}
spec: {gatewayClassName: istio, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: http, port: 80, protocol: HTTP}]}`)
	for i := range 50 {
		world.put(b, set(i, 1))
		for j := range 64 {
			world.put(b, fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r%d-%d, namespace: "+
				"a}\nspec: {parentRefs: [{kind: ListenerSet, name: s%d, sectionName: l%d}], rules: [{backendRefs: [{name: w, port: 80}]}]}", i,
				j, i, j))
		}
	}
	stage := gatewayapi.New(gatewayapi.Options{Domain: "cluster.local", Limits: limits.Default()})
	in := derive.Input{Mesh: mesh.Default(), Lookup: constant(world)}
	for key, o := range world {
		in.Changed = append(in.Changed, kinds.Change{Key: key, Object: o})
	}
	config.Sort(in.Changed)
	stage.Derive(in)
	key := kinds.Key{Kind: kinds.ListenerSet, Namespace: "a", Name: "s0"}
	generation := int64(1)
	b.ReportAllocs()
	for b.Loop() {
		o := *world[key]
		generation++
		o.Generation = generation
		in.Changed = []kinds.Change{{Key: key, Object: &o}}
		stage.Derive(in)
	}
}

// constant is a Lookup of a stage that selects nothing.
type constant map[kinds.Key]*kinds.Object

func (o constant) Get(k kinds.Key) *kinds.Object { return o[k] }

func (constant) Select(*kinds.Kind, string, map[string]string) []*kinds.Object { return nil }
