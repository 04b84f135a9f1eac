package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/rpc"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// BenchmarkPush: what one change costs from the object to the last acknowledgement, by the size of the mesh and by how
// many namespaces there are proxies in, one in each: the processor's time, of the clients as well, which read nothing
// but names. A Service comes and goes, an endpoint flips, a VirtualService changes.
func BenchmarkPush(b *testing.B) {
	for _, services := range []int{250, 1000, 4000} {
		for _, proxies := range []int{1, 20} {
			var f *fleet
			for _, what := range []string{"service", "endpoint", "virtualservice"} {
				b.Run(fmt.Sprintf("change=%s/services=%d/cohorts=%d", what, services, proxies), func(b *testing.B) {
					if f == nil {
						f = newFleet(b, services, proxies)
					}
					there, back := f.changes(what)
					f.measure(b, there, back)
				})
			}
			if f != nil {
				f.stop()
			}
		}
	}
}

const benchNamespaces = 20 // of services

// fleet is a server with some proxies, in one process.
type fleet struct {
	services int
	world    *ingest.World
	t        *translate.Translator
	server   *xds.Server
	cancel   context.CancelFunc
	proxies  int
	running  sync.WaitGroup
	awaited  atomic.Pointer[awaited]
}

// step is a commit, and what it brings each proxy.
type step struct {
	changes []kinds.Change
	brings  []string
}

// awaited is what proxies are still to be sent, for each what it lacks.
type awaited struct {
	lacking []map[string]bool
	left    atomic.Int64
	done    chan struct{} // closed when nothing is
}

func newAwaited(proxies int, events []string) *awaited {
	a := &awaited{done: make(chan struct{})}
	for range proxies {
		m := map[string]bool{}
		for _, e := range events {
			m[e] = true
		}
		a.lacking = append(a.lacking, m)
	}
	a.left.Store(int64(proxies * len(events)))
	return a
}

// came notes, for one proxy at a time, that something was sent.
func (a *awaited) came(proxy int, event string) {
	if a.lacking[proxy][event] {
		if delete(a.lacking[proxy], event); a.left.Add(-1) == 0 {
			close(a.done)
		}
	}
}

// newFleet returns a server with proxies that have everything.
func newFleet(b *testing.B, services, proxies int) *fleet {
	b.Helper()
	f, o := newLonelyFleet(services)
	f.proxies = proxies
	g := ports.NewGRPC(o.Limits, o.keepalive(), rpc.New(prometheus.NewRegistry(), o.Logger))
	f.server.Register(g)
	l := bufconn.Listen(1 << 20)
	f.running.Go(func() { _ = g.Serve(l) })
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = func() { cancel(); f.server.Shutdown(); g.Stop() }
	a := newAwaited(proxies,
		[]string{added(envoy.EndpointType, benchCluster(services-1)), added(envoy.VirtualHostType, benchHost(services-1))})
	f.awaited.Store(a)
	for i := range proxies {
		f.running.Go(func() { f.proxy(ctx, b, l, i) })
	}
	f.wait(b, a)
	return f
}

// newLonelyFleet returns a server without proxies, and its options.
func newLonelyFleet(services int) (*fleet, Options) {
	o := Options{
		Options: ingest.Options{Logger: slog.New(slog.DiscardHandler), Namespace: "istio-system",
			Domain: "cluster.local", ClusterID: "Kubernetes", Limits: limits.Default()},
		KeepaliveInterval: time.Minute, KeepaliveTimeout: time.Minute,
	}
	o.Limits.Tombstones = math.MaxInt // a stream that lasted so long would go back to whole route configurations
	f := &fleet{services: services, world: newWorld(o, nil, nil, nil, nil),
		t: translate.New(translate.Options{Idle: idleResources, Features: catalog.Features()})}
	o.Limits.RequestsPerSecond = 1e9 // nobody changes so much for long elsewhere
	f.server = xds.New(xds.Options{Translator: f.t, Limits: o.Limits})
	var all []kinds.Change
	for i := range services {
		all = append(append(all, benchService(i), benchSlice(i, 0)), benchPods(i)...)
	}
	for i := range min(200, services) {
		all = append(all, benchVirtualService(i, 1))
	}
	f.publish(all)
	return f, o
}

func (f *fleet) stop() {
	f.cancel()
	f.running.Wait()
}

func (f *fleet) publish(changes []kinds.Change) {
	s := f.world.Commit(changes, time.Now())
	f.t.Prepare(s)
	f.server.Publish(s)
}

// commit does a step and waits until every proxy has what it brings.
func (f *fleet) commit(b *testing.B, s step) {
	a := newAwaited(f.proxies, s.brings)
	f.awaited.Store(a)
	f.publish(s.changes)
	f.wait(b, a)
}

func (f *fleet) wait(b *testing.B, a *awaited) {
	select {
	case <-a.done:
	case <-time.After(time.Minute):
		b.Fatalf("the proxies lack %d of what was to come", a.left.Load())
	}
}

func (f *fleet) measure(b *testing.B, there, back step) {
	for range 2 {
		f.commit(b, there)
		f.commit(b, back)
	}
	b.ReportAllocs()
	runtime.GC()
	n, start := 0, benchProcessor(b)
	for b.Loop() {
		f.commit(b, []step{there, back}[n%2])
		n++
	}
	b.ReportMetric(float64(benchProcessor(b)-start)/float64(n), "cpu-ns/op")
	if n%2 == 1 {
		f.commit(b, back)
	}
}

func (f *fleet) changes(what string) (there, back step) {
	switch n := f.services; what {
	case "service":
		there = step{append([]kinds.Change{benchService(n), benchSlice(n, 0)}, benchPods(n)...), []string{
			added(envoy.ClusterType, benchCluster(n)), added(envoy.EndpointType, benchCluster(n)), added(envoy.VirtualHostType, benchHost(n)),
		}}
		for _, c := range there.changes {
			back.changes = append(back.changes, kinds.Change{Key: c.Key})
		}
		back.brings = []string{removed(envoy.ClusterType, benchCluster(n)), removed(envoy.VirtualHostType, benchHost(n))}
	case "endpoint":
		brings := []string{added(envoy.EndpointType, benchCluster(7))}
		there, back = step{[]kinds.Change{benchSlice(7, 1)}, brings}, step{[]kinds.Change{benchSlice(7, 0)}, brings}
	default:
		brings := []string{added(envoy.VirtualHostType, benchHost(7))}
		there, back = step{[]kinds.Change{benchVirtualService(7, 2)}, brings}, step{[]kinds.Change{benchVirtualService(7, 1)}, brings}
	}
	return there, back
}

func added(typeURL, name string) string { return "+" + typeURL + " " + name }

func removed(typeURL, name string) string { return "-" + typeURL + " " + name }

func benchCluster(i int) string {
	ns, name := benchPlace(i)
	return "outbound|80||" + name + "." + ns + ".svc.cluster.local"
}

func benchHost(i int) string {
	ns, name := benchPlace(i)
	return "80/" + name + "." + ns + ".svc.cluster.local:80"
}

// proxy is a delta client that acknowledges everything, and asks for the endpoints of the clusters that it has.
func (f *fleet) proxy(ctx context.Context, b *testing.B, l *bufconn.Listener, i int) {
	conn, err := grpc.NewClient("passthrough:///", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		b.Error(err)
		return
	}
	send := func(r *discoveryv3.DeltaDiscoveryRequest) { _ = stream.Send(r) }
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, Node: benchNode(i, 0)})
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ListenerType})
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.RouteType, ResourceNamesSubscribe: []string{"80"}})
	hosts := false
	known := map[string]bool{}
	for {
		r, err := stream.Recv()
		if err != nil {
			return
		}
		send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
		switch r.TypeUrl {
		case envoy.ClusterType:
			var add, remove []string
			for _, x := range r.Resources {
				if strings.HasPrefix(x.Name, "outbound|") && !known[x.Name] {
					known[x.Name] = true
					add = append(add, x.Name)
				}
			}
			for _, name := range r.RemovedResources {
				if known[name] {
					delete(known, name)
					remove = append(remove, name)
				}
			}
			if len(add)+len(remove) > 0 {
				send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove})
			}
		case envoy.RouteType:
			if !hosts {
				hosts = true
				send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.VirtualHostType})
			}
		}
		a := f.awaited.Load()
		for _, x := range r.Resources {
			a.came(i, added(r.TypeUrl, x.Name))
		}
		for _, name := range r.RemovedResources {
			a.came(i, removed(r.TypeUrl, name))
		}
	}
}

// benchNode is the node of an Envoy beside a pod of a service.
func benchNode(i, pod int) *corev3.Node {
	ns, service := benchPlace(i)
	md, _ := structpb.NewStruct(map[string]any{"NAMESPACE": ns, "CLUSTER_ID": "Kubernetes"}) // it has nothing that fails
	return &corev3.Node{
		Id: fmt.Sprintf("sidecar~%s~%s-%d.%s~%s.svc.cluster.local", podIP(i, pod), service, pod, ns, ns), Metadata: md,
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}},
		},
	}
}

func benchObject(kind *kinds.Kind, ns, name string, labels map[string]string, spec any) kinds.Change {
	k := kinds.Key{Kind: kind, Namespace: ns, Name: name}
	return kinds.Change{Key: k, Object: &kinds.Object{Key: k, Labels: labels, Spec: spec}}
}

func benchPlace(i int) (ns, name string) {
	return fmt.Sprint("ns-", i%benchNamespaces), fmt.Sprint("svc-", i)
}

func podIP(i, p int) string {
	n := i*64 + p
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&0xff, n&0xff)
}

func benchService(i int) kinds.Change {
	ns, name := benchPlace(i)
	return benchObject(kinds.Service, ns, name, nil, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: corev1.ServiceSpec{
			ClusterIP:  fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff),
			ClusterIPs: []string{fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)}, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		}})
}

const benchEndpoints = 5

func benchPods(i int) []kinds.Change {
	ns, name := benchPlace(i)
	var all []kinds.Change
	for p := range benchEndpoints {
		pod, labels := fmt.Sprint(name, "-", p), map[string]string{"app": name, "security.istio.io/tlsMode": "istio"}
		all = append(all, benchObject(kinds.Pod, ns, pod, labels, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: ns, Labels: labels}, Spec: corev1.PodSpec{ServiceAccountName: name},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: podIP(i, p), PodIPs: []corev1.PodIP{{IP: podIP(i, p)}},
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}))
	}
	return all
}

// benchSlice holds the pods of a service, and more addresses that are no pod's.
func benchSlice(i, more int) kinds.Change {
	ns, service := benchPlace(i)
	labels := map[string]string{discoveryv1.LabelServiceName: service}
	name, port, protocol, ready := "http", int32(8080), corev1.ProtocolTCP, true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: service + "-a", Namespace: ns, Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for p := range benchEndpoints + more {
		e := discoveryv1.Endpoint{Addresses: []string{podIP(i, p)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}}
		if p < benchEndpoints {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprint(service, "-", p), Namespace: ns}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return benchObject(kinds.EndpointSlice, ns, s.Name, labels, s)
}

func benchVirtualService(i, seconds int) kinds.Change {
	ns, service := benchPlace(i)
	return benchObject(kinds.VirtualService, ns, service, nil, &networkingv1.VirtualService{Hosts: []string{service},
		Http: []*networkingv1alpha3.HTTPRoute{{
			Timeout: durationpb.New(time.Duration(seconds) * time.Second),
			Route:   []*networkingv1alpha3.HTTPRouteDestination{{Destination: &networkingv1alpha3.Destination{Host: service}}},
		}}})
}

// benchProcessor is the time that this process took of the processor.
func benchProcessor(b *testing.B) time.Duration {
	var u syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
