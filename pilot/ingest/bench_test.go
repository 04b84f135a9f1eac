package ingest

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// BenchmarkOneHTTPRoute commits one changed HTTPRoute of 5000, each with a host of its own.
func BenchmarkOneHTTPRoute(b *testing.B) {
	w, route := worldOfHTTPRoutes(b, 5000)
	header := 0
	b.ReportAllocs()
	for b.Loop() {
		header++
		before := w.Snapshot()
		if w.Commit([]kinds.Change{route(header%5000, header)}, time.Time{}); w.Snapshot() == before {
			b.Fatal("nothing has changed")
		}
		if n := len(w.TakeStatuses()); n != 1 && header > 1 {
			b.Fatalf("%d statuses have changed", n)
		}
	}
}

// BenchmarkAnalysisOfHTTPRoutes analyses 5000 HTTPRoutes, each with a host of its own.
func BenchmarkAnalysisOfHTTPRoutes(b *testing.B) {
	w, _ := worldOfHTTPRoutes(b, 5000)
	b.ReportAllocs()
	for b.Loop() {
		w.Analyze()
	}
}

// worldOfHTTPRoutes returns a World with n HTTPRoutes, and a function that returns one of them with a value of a
// header.
func worldOfHTTPRoutes(b *testing.B, n int) (*World, func(i, header int) kinds.Change) {
	b.Helper()
	w := New(Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system", Domain: "cluster.local"},
		Parts{Catalog: catalog.Features(), Stages: stagesOfTests()})
	port := gatewayv1.PortNumber(80)
	route := func(i, header int) kinds.Change {
		o := &kinds.Object{Key: kinds.Key{Kind: kinds.HTTPRoute, Namespace: "a", Name: fmt.Sprintf("r%d", i)}, Generation: int64(header)}
		o.Spec = &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Generation: int64(header)}, Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("h%d.example.com", i))},
			Rules: []gatewayv1.HTTPRouteRule{{
				Filters: []gatewayv1.HTTPRouteFilter{{
					Type:                  gatewayv1.HTTPRouteFilterRequestHeaderModifier,
					RequestHeaderModifier: &gatewayv1.HTTPHeaderFilter{Set: []gatewayv1.HTTPHeader{{Name: "x", Value: fmt.Sprint(header)}}},
				}},
				BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
					BackendObjectReference: gatewayv1.BackendObjectReference{Name: "web", Port: &port},
				}}},
			}},
		}}
		return kinds.Change{Key: o.Key, Object: o}
	}
	var all []kinds.Change
	for _, o := range []*kinds.Object{
		{
			Key:  kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "web"},
			Spec: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		},
		{Key: kinds.Key{Kind: kinds.KubeGateway, Namespace: "a", Name: "edge"}, Spec: &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "istio", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		}}},
	} {
		all = append(all, kinds.Change{Key: o.Key, Object: o})
	}
	for i := range n {
		all = append(all, route(i, 0))
	}
	config.Sort(all)
	w.Commit(all, time.Time{})
	if got := len(w.Snapshot().AllObjects(kinds.VirtualService)); got != n {
		b.Fatalf("%d VirtualServices", got)
	}
	return w, route
}

// BenchmarkHeapOfObjects reports the heap that objects of one source cost, beside what they are themselves.
func BenchmarkHeapOfObjects(b *testing.B) {
	const n = 10_000
	changes := make([]kinds.Change, n)
	for i := range changes {
		k := kinds.Key{Kind: kinds.WorkloadGroup, Namespace: "a", Name: fmt.Sprint("w", i)}
		changes[i] = kinds.Change{Key: k, Object: &kinds.Object{Key: k, Spec: &networkingv1.WorkloadGroup{}}}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		var s *Sources
		o := Options{Logger: slog.New(slog.DiscardHandler)}
		s = newSources(o, New(o, Parts{Catalog: catalog.Features()}), func(changes []kinds.Change) { s.world.Commit(changes, time.Time{}) })
		s.add("cluster")(changes)
		b.ReportMetric(float64(heap()-before)/n, "B/object")
		runtime.KeepAlive(s)
	}
	runtime.KeepAlive(changes)
}
