package bootstrap

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/difference"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/translate"
)

var differenceChanges = flag.Int("differences", 100, "how many random changes TestDifferences predicts; 500 is thorough")

// changesOfWorld is how many of them befall one world.
const changesOfWorld = 25

// TestDifferences predicts random changes by package difference, and then has a server take them. What the server then
// pushes to a proxy of every sort is exactly what was predicted for it: those resources, added, changed or removed, and
// no others; and nothing to any proxy that was not named. What changes is of every kind that is translated or derived
// from: of Istio, Kubernetes and the Gateway API.
func TestDifferences(t *testing.T) {
	seed, _ := histories.Seed(t)
	reached := map[string]int{}
	for done := 0; done < *differenceChanges; done += changesOfWorld {
		predict(t, seed+uint64(done), min(changesOfWorld, *differenceChanges-done), reached)
		if t.Failed() {
			return
		}
	}
	t.Logf("changes that reach each proxy: %v", reached)
	for _, name := range []string{"edge", "ingress"} { // what they serve is derived
		if reached[name] == 0 && *differenceChanges >= 100 {
			t.Errorf("no change reaches %s", name)
		}
	}
}

func predict(t *testing.T, seed uint64, changes int, reached map[string]int) {
	t.Helper()
	p := newPast(t, seed)
	p.add(t, "testdata/derived.yaml")
	o := testOptions(t)
	o.Logger, o.DebounceAfter, o.Poll, o.NoWatch = slog.New(slog.DiscardHandler), time.Millisecond, time.Hour, true
	o.ConfigDir, o.Monitoring = t.TempDir(), ""
	o.Limits.Departure = time.Nanosecond
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{contents: contents{known: map[string]*content{}, version: map[string]string{}}, server: s, past: p}
	stop := run(t, s)
	defer func() { _ = stop() }()
	eventually(t, "the server is ready", s.ready.Load)
	s.throttle.Take(p.start(t))
	h.settle()

	w := newWorld(s.o, nil, nil, nil, nil)
	comparer := difference.New(translate.New(translate.Options{Features: catalog.Features(), Idle: 32 << 20}))
	proxies := map[string]*node.Proxy{}
	watchers := map[string]*watcher{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	all := nodes()
	all["edge"] = map[string]string{"ID": "router~10.9.0.10~edge-0.b~b.svc.cluster.local", "NAMESPACE": "b", "gateway.networking.k8s.io/gateway-name": "edge"}
	all["ingress"] = map[string]string{"ID": "router~10.9.0.11~ingress-0.istio-system~istio-system.svc.cluster.local", "NAMESPACE": "istio-system", "istio": "ingressgateway"}
	for name, facts := range all {
		n := nodeOf(t, facts, delta)
		if proxies[name], err = node.Parse(n); err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("passthrough:///"+s.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		x := &watcher{h: h, stream: stream, have: map[string]map[string]*content{}, subs: map[string]map[string]bool{envoy.EndpointType: {}, envoy.RouteType: {}}}
		x.reset()
		watchers[name] = x
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType, Node: n}); err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ListenerType}); err != nil {
			t.Fatal(err)
		}
		running.Add(1)
		go func() {
			defer running.Done()
			for {
				r, err := stream.Recv()
				if err != nil {
					return
				}
				x.take(r)
			}
		}()
	}
	before, err := comparer.Look(w.Commit(h.present(), time.Time{}), proxies)
	if err != nil {
		t.Fatal(err)
	}
	rest := func(v *difference.View, what string) bool {
		for name, x := range watchers {
			late := ""
			for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
				if late = x.differs(v, name); late == "" || time.Now().After(end) {
					break
				}
			}
			if late != "" {
				t.Errorf("seed %d, %s, %s: it never has what is predicted: %s\n%s", seed, what, name, late, strings.Join(p.told, "\n"))
				return false
			}
			if !x.barrier() {
				t.Errorf("seed %d, %s, %s: it is answered no more", seed, what, name)
				return false
			}
		}
		return true
	}
	if !rest(before, "at first") {
		return
	}
	for n := range changes {
		for _, x := range watchers {
			x.reset()
		}
		p.told = nil
		batch := p.next(t)
		after, err := comparer.Look(w.Commit(batch, time.Time{}), proxies)
		if err != nil {
			t.Fatal(err)
		}
		predicted := map[string][]string{}
		for _, g := range comparer.Compare(before, after).Groups {
			for _, name := range g.Proxies {
				reached[name]++
				for _, c := range g.Changes {
					if slices.Contains([]string{"cds", "eds", "lds", "rds"}, c.Type) {
						predicted[name] = append(predicted[name], describe(c.Type, c.Name, c.Has == nil))
					}
				}
			}
		}
		s.throttle.Take(batch)
		h.settle()
		if !rest(after, fmt.Sprintf("change %d", n)) {
			return
		}
		for name, x := range watchers {
			slices.Sort(predicted[name])
			if got := x.pushed(); !slices.Equal(got, predicted[name]) {
				t.Errorf("seed %d, change %d, %s: pushed\n%s\npredicted\n%s\nwhat changed:\n%s", seed, n, name, strings.Join(got, "\n"), strings.Join(predicted[name], "\n"), strings.Join(p.told, "\n"))
				return
			}
		}
		before = after
	}
}

// add has objects of a file change, too: those that others are derived from, of the Gateway API and Ingresses.
func (p *past) add(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range readObjects(t, path, string(text)) {
		if p.pool[o.Key] == nil {
			p.keys = append(p.keys, o.Key)
		}
		p.pool[o.Key] = append(p.pool[o.Key], o)
	}
}

func describe(short, name string, gone bool) string {
	if gone {
		return "- " + short + " " + name
	}
	return "+ " + short + " " + name
}

// watcher is a client that subscribes as Envoy does, and writes down what comes.
type watcher struct {
	h      *history
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	mu      sync.Mutex
	have    map[string]map[string]*content
	subs    map[string]map[string]bool
	came    map[string]bool // as describe has it
	barred  int
	reached int
	failed  error
}

func (x *watcher) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.came = map[string]bool{}
}

// pushed returns what has come. What changed before it went is what went.
func (x *watcher) pushed() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	for what := range x.came {
		if gone, ok := strings.CutPrefix(what, "- "); ok {
			delete(x.came, "+ "+gone)
		}
	}
	return slices.Sorted(maps.Keys(x.came))
}

// take is one response.
func (x *watcher) take(r *discoveryv3.DeltaDiscoveryResponse) {
	x.mu.Lock()
	defer x.mu.Unlock()
	short := envoy.ShortType(r.TypeUrl)
	if x.have[r.TypeUrl] == nil {
		x.have[r.TypeUrl] = map[string]*content{}
	}
	for _, a := range r.Resources {
		if _, ok := strings.CutPrefix(a.Name, "barrier-"); ok {
			x.reached++
			continue
		}
		if subs := x.subs[r.TypeUrl]; subs != nil && !subs[a.Name] { // it was on its way
			continue
		}
		c, err := x.h.look(a.Resource)
		if err != nil {
			x.failed = err
			return
		}
		if had := x.have[r.TypeUrl][a.Name]; had != c {
			x.came[describe(short, a.Name, false)] = true
		} else if r.TypeUrl != envoy.EndpointType || !x.came[describe("cds", a.Name, false)] { // a cluster that changes waits for its endpoints
			x.failed = fmt.Errorf("%s %s comes though nothing is new in it", short, a.Name)
		}
		x.have[r.TypeUrl][a.Name] = c
	}
	for _, name := range r.RemovedResources {
		x.drop(r.TypeUrl, name)
	}
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}
	_ = x.stream.Send(ack)
	switch r.TypeUrl {
	case envoy.ClusterType:
		x.follow(r.TypeUrl, envoy.EndpointType)
	case envoy.ListenerType:
		x.follow(r.TypeUrl, envoy.RouteType)
	}
}

func (x *watcher) drop(typeURL, name string) {
	if x.have[typeURL][name] != nil {
		delete(x.have[typeURL], name)
		x.came[describe(envoy.ShortType(typeURL), name, true)] = true
	}
}

// follow subscribes to what resources of one type name of another.
func (x *watcher) follow(from, to string) {
	wanted := map[string]bool{}
	for _, c := range x.have[from] {
		for _, name := range c.refers {
			wanted[name] = true
		}
	}
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: to}
	for name := range wanted {
		if !x.subs[to][name] {
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		}
	}
	for name := range x.subs[to] {
		if !wanted[name] {
			r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, name)
			x.drop(to, name)
		}
	}
	x.subs[to] = wanted
	if len(r.ResourceNamesSubscribe)+len(r.ResourceNamesUnsubscribe) > 0 {
		_ = x.stream.Send(r)
	}
}

// differs says where the client does not have what a View has for it.
func (x *watcher) differs(v *difference.View, name string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed != nil {
		return x.failed.Error()
	}
	for _, typeURL := range subscribedTypes[:4] {
		n := 0
		for r := range v.Get(name, typeURL).All {
			n++
			if has := x.have[typeURL][r.Name]; has == nil || has.value != string(r.Value()) {
				return envoy.ShortType(typeURL) + " " + r.Name
			}
		}
		if n != len(x.have[typeURL]) {
			return fmt.Sprintf("%d %s, not %d", len(x.have[typeURL]), envoy.ShortType(typeURL), n)
		}
	}
	return ""
}

// barrier asks for what nobody has heard of: once that is answered, what was to be pushed before has come.
func (x *watcher) barrier() bool {
	x.mu.Lock()
	x.barred++
	name, want := fmt.Sprintf("barrier-%d", x.barred), x.barred
	_ = x.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesSubscribe: []string{name}})
	x.mu.Unlock()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		x.mu.Lock()
		there := x.reached >= want
		if there {
			_ = x.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.EndpointType, ResourceNamesUnsubscribe: []string{name}})
		}
		x.mu.Unlock()
		if there {
			return true
		}
	}
	return false
}
