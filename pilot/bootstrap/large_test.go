package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1"
	typev1beta1 "istio.io/api/type/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// largeSize is how many entries a large object has: near what Istio's objects may have, and enough for responses beyond
// 4 MiB, where gRPC's clients stop by default.
const largeSize = 4000

// manyOf makes a list. In its second state a quarter of it are others.
func manyOf[T any](n, state int, one func(i int) T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = one(i + state*n/4)
	}
	return list
}

// largeObject has many entries of one field.
type largeObject struct {
	kind     *kinds.Kind
	field    string
	spec     func(n, state int) any
	clusters bool // each entry is a cluster
}

func largeObjects() []largeObject {
	service := func(protocol, ip string) func(n, state int) any {
		return func(n, state int) any {
			return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip},
				Selector: map[string]string{"app": "svc-1"}, Ports: manyOf(n, state, func(i int) corev1.ServicePort {
					return corev1.ServicePort{Name: fmt.Sprint(protocol, "-", i), Port: int32(10000 + i),
						TargetPort: intstr.FromInt32(int32(20000 + i)), Protocol: corev1.ProtocolTCP}
				})}}
		}
	}
	entry := func(edit func(e *networkingv1.ServiceEntry, n, state int)) func(n, state int) any {
		return func(n, state int) any {
			e := &networkingv1.ServiceEntry{
				Hosts: []string{"large.example.com"}, Resolution: networkingv1alpha3.ServiceEntry_STATIC,
				Endpoints: []*networkingv1alpha3.WorkloadEntry{{Address: fmt.Sprint("10.99.0.", state)}},
				Ports:     []*networkingv1alpha3.ServicePort{{Name: "a", Number: 9000, Protocol: "TCP"}},
			}
			edit(e, n, state)
			return e
		}
	}
	host := func(i int) string { return fmt.Sprintf("h%d.example.com", i) }
	virtual := func(edit func(v *networkingv1.VirtualService, n, state int)) func(n, state int) any {
		return func(n, state int) any {
			v := &networkingv1.VirtualService{Hosts: []string{"svc-1.ns-1.svc.cluster.local"}, Http: []*networkingv1alpha3.HTTPRoute{{
				Route: []*networkingv1alpha3.HTTPRouteDestination{{Destination: &networkingv1alpha3.Destination{Host: "svc-1.ns-1.svc.cluster.local"}}},
			}}}
			edit(v, n, state)
			return v
		}
	}
	labels := func(i int) map[string]string { return map[string]string{"v": fmt.Sprint(i)} }
	return []largeObject{
		{kinds.Service, "ports of HTTP", service("http", "10.77.0.1"), true},
		{kinds.Service, "ports of TCP", service("tcp", "10.77.0.1"), true},
		{kinds.Service, "ports without addresses", service("tcp", corev1.ClusterIPNone), true},
		{kinds.ServiceEntry, "hosts", entry(func(e *networkingv1.ServiceEntry, n, state int) { e.Hosts = manyOf(n, state, host) }), false},
		{kinds.ServiceEntry, "ports", entry(func(e *networkingv1.ServiceEntry, n, state int) {
			e.Ports = manyOf(n, state, func(i int) *networkingv1alpha3.ServicePort {
				return &networkingv1alpha3.ServicePort{Name: fmt.Sprint("p", i), Number: uint32(10000 + i), Protocol: "HTTP"}
			})
		}), true},
		{kinds.ServiceEntry, "addresses", entry(func(e *networkingv1.ServiceEntry, n, state int) {
			e.Addresses = manyOf(n, state, func(i int) string { return fmt.Sprintf("11.1.%d.%d", i>>8, i&0xff) })
		}), false},
		{kinds.ServiceEntry, "endpoints", entry(func(e *networkingv1.ServiceEntry, n, state int) {
			e.Endpoints = manyOf(n, state, func(i int) *networkingv1alpha3.WorkloadEntry {
				return &networkingv1alpha3.WorkloadEntry{Address: fmt.Sprintf("11.2.%d.%d", i>>8, i&0xff), ServiceAccount: fmt.Sprint("sa-", i)}
			})
		}), false},
		{kinds.VirtualService, "hosts", virtual(func(v *networkingv1.VirtualService, n, state int) { v.Hosts = manyOf(n, state, host) }), false},
		{kinds.VirtualService, "http", virtual(func(v *networkingv1.VirtualService, n, state int) {
			v.Http = manyOf(n, state, func(i int) *networkingv1alpha3.HTTPRoute {
				return &networkingv1alpha3.HTTPRoute{Match: []*networkingv1alpha3.HTTPMatchRequest{
					{Uri: &networkingv1alpha3.StringMatch{MatchType: &networkingv1alpha3.StringMatch_Prefix{Prefix: fmt.Sprint("/", i)}}},
				}, Route: v.Http[0].Route}
			})
		}), false},
		{kinds.DestinationRule, "subsets", func(n, state int) any {
			return &networkingv1.DestinationRule{Host: "svc-1.ns-1.svc.cluster.local",
				Subsets: manyOf(n, state, func(i int) *networkingv1alpha3.Subset {
					return &networkingv1alpha3.Subset{Name: fmt.Sprint("v", i), Labels: labels(i)}
				})}
		}, false},
		{kinds.Sidecar, "egress.hosts", func(n, state int) any {
			return &networkingv1.Sidecar{Egress: []*networkingv1alpha3.IstioEgressListener{{
				Hosts: append(manyOf(n, state, func(i int) string { return "*/" + host(i) }), "*/*"),
			}}}
		}, false},
		{kinds.Gateway, "servers.hosts", func(n, state int) any {
			return &networkingv1.Gateway{Servers: []*networkingv1alpha3.Server{{
				Port: &networkingv1alpha3.Port{Name: "http", Number: 80, Protocol: "HTTP"}, Hosts: manyOf(n, state, host),
			}}}
		}, false},
		{kinds.PeerAuthentication, "portLevelMtls", func(n, state int) any {
			p := &securityv1.PeerAuthentication{Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "svc-0"}},
				PortLevelMtls: map[uint32]*securityv1.PeerAuthentication_MutualTLS{}}
			for i := range n {
				p.PortLevelMtls[uint32(10000+i+state*n/4)] = &securityv1.PeerAuthentication_MutualTLS{
					Mode: securityv1.PeerAuthentication_MutualTLS_STRICT,
				}
			}
			return p
		}, false},
		{kinds.AuthorizationPolicy, "rules", func(n, state int) any {
			return &securityv1.AuthorizationPolicy{Selector: &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "svc-1"}},
				Rules: manyOf(n, state, func(i int) *securityv1.Rule {
					return &securityv1.Rule{To: []*securityv1.Rule_To{{Operation: &securityv1.Operation{Paths: []string{fmt.Sprint("/", i)}}}}}
				})}
		}, false},
		{kinds.EndpointSlice, "endpoints", func(n, state int) any {
			name, port, ready := "http", int32(8080), true
			return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
				Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}, Endpoints: manyOf(min(n, 1000), state, func(i int) discoveryv1.Endpoint {
					return discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("11.3.%d.%d", i>>8, i&0xff)},
						Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
				})}
		}, false},
	}
}

// change is the object in a state.
func (l largeObject) change(n, state int) kinds.Change {
	k := kinds.Key{Kind: l.kind, Namespace: "ns-0", Name: "large"}
	o := &kinds.Object{Key: k, Spec: l.spec(n, state)}
	if l.kind == kinds.EndpointSlice {
		o.Labels = map[string]string{discoveryv1.LabelServiceName: "svc-0"}
	}
	return kinds.Change{Key: k, Object: o}
}

// TestLargeObjects: the largest object of each kind comes, changes and goes while streams of every protocol live on,
// and the endpoints of another service reach each of them in between. At last each stream has, byte for byte, what a
// fresh Translator makes of the newest Snapshot. It waits for events: what a server cannot do within timeout stops a
// mesh. What the work grows with is package translate's TestLinear.
func TestLargeObjects(t *testing.T) {
	size := largeSize
	if histories.Raced {
		size /= 8
	}
	if testing.Short() {
		size /= 8
	}
	h, beside := newLargeHistory(t)
	for _, l := range largeObjects() {
		t.Run(l.kind.Name+"/"+l.field, func(t *testing.T) {
			key := l.change(1, 0).Key
			h.past.keys = append(h.past.keys, key)
			for state := range 2 {
				h.takes(l.change(size, state))
				beside(t)
				if l.clusters {
					h.hasClusters(t, size)
				}
				beside(t)
			}
			h.takes(kinds.Change{Key: key})
			beside(t)
			if err := h.rest(); err != nil {
				t.Fatal(shortened(err))
			}
			h.forget()
		})
	}
}

// forget drops all Snapshots but the newest, with what clients should have of them.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = h.all[len(h.all)-1:]
	h.pictures.Clear()
}

func shortened(err error) string { return err.Error()[:min(len(err.Error()), 8<<10)] }

// newLargeHistory runs a server with a small world and a client of each protocol. beside changes the endpoints of a
// service and waits until each has them.
func newLargeHistory(t *testing.T) (h *history, beside func(*testing.T)) {
	t.Helper()
	o := testOptions(t)
	o.Logger, o.DebounceAfter, o.Poll, o.NoWatch = slog.New(slog.DiscardHandler), time.Millisecond, time.Hour, true
	o.ConfigDir, o.Monitoring = t.TempDir(), ""
	const text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: first}\n"
	write(t, filepath.Join(o.ConfigDir, "first.yaml"), text)
	first := readObjects(t, "first.yaml", text)[0]
	s, err := New(o)
	must.Succeed(t, err)
	p := &past{r: rand.New(rand.NewPCG(1, 0)), present: map[kinds.Key]*kinds.Object{first.Key: first}}
	h = &history{contents: contents{known: map[string]*content{}, version: map[string]string{}}, server: s, past: p}
	prepare := s.prepare
	s.prepare = func(s *snapshot.Snapshot) {
		h.mu.Lock()
		h.all = append(h.all, s)
		h.mu.Unlock()
		prepare(s)
	}
	run(t, s)
	eventually(t, "the server is ready", s.ready.Load)
	var all []kinds.Change
	for i := range 12 {
		all = append(append(all, benchService(i), benchSlice(i, 0)), benchPods(i)...)
	}
	for _, c := range all {
		p.keys = append(p.keys, c.Key)
	}
	h.takes(all...)
	ctx, cancel := context.WithCancel(t.Context())
	for _, mode := range []string{whole, delta, divided} {
		conn, err := grpc.NewClient("passthrough:///"+s.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30))) // Envoy has no bound
		must.Succeed(t, err)
		t.Cleanup(func() { conn.Close() })
		n := nodeOf(t, map[string]string{"ID": "sidecar~" + podIP(0, 0) + "~svc-0-0.ns-0~ns-0.svc.cluster.local", "NAMESPACE": "ns-0"}, mode)
		c := newModelEnvoy(discoveryv3.NewAggregatedDiscoveryServiceClient(conn), h, "svc-0", mode, n, p.r.Uint64(), 0)
		h.clients = append(h.clients, c)
		go c.run(ctx)
	}
	t.Cleanup(func() {
		cancel()
		for _, c := range h.clients {
			<-c.done
		}
	})
	if err := h.rest(); err != nil {
		t.Fatal(shortened(err))
	}
	more := 0
	return h, func(t *testing.T) {
		t.Helper()
		more = more%40 + 1
		h.takes(benchSlice(3, more))
		h.until(t, "the endpoints of another service", func(c *modelEnvoy) bool {
			x := c.have[envoy.EndpointType][benchCluster(3)]
			return x != nil && strings.Contains(x.value, podIP(3, benchEndpoints+more-1)) &&
				!strings.Contains(x.value, podIP(3, benchEndpoints+more))
		})
	}
}

// takes hands changes to the server.
func (h *history) takes(changes ...kinds.Change) {
	for _, c := range changes {
		if h.past.present[c.Key] = c.Object; c.Object == nil {
			delete(h.past.present, c.Key)
		}
	}
	h.server.throttle.Take(changes)
}

// hasClusters waits until each client has so many clusters of the large object, with the assignments that they want.
func (h *history) hasClusters(t *testing.T, n int) {
	t.Helper()
	h.until(t, "the clusters of the large object", func(c *modelEnvoy) bool {
		has := 0
		for name := range c.have[envoy.ClusterType] {
			if strings.Contains(name, "|large.") {
				has++
			}
		}
		return has == n && len(c.have[envoy.EndpointType]) == len(c.subs[envoy.EndpointType])
	})
}

// until waits until each client has something.
func (h *history) until(t *testing.T, what string, has func(c *modelEnvoy) bool) {
	t.Helper()
	for _, c := range h.clients {
		for end := time.Now().Add(2 * timeout); ; time.Sleep(5 * time.Millisecond) {
			if err := h.failure(); err != nil {
				t.Fatal(shortened(err))
			}
			c.mu.Lock()
			ok := has(c)
			c.mu.Unlock()
			if ok {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%v has not got %s", c, what)
			}
		}
	}
}
