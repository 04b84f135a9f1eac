package translate_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestUnusedScopesAreEvicted has a stream subscribe to the same names while each change makes it another scope. The
// Sets of old scopes do not stay long.
func TestUnusedScopesAreEvicted(t *testing.T) {
	histories.NoRace(t)
	for kind, edit := range map[string]string{
		"VirtualService": `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: n0}
spec: {hosts: [s0], http: [{match: [{sourceLabels: {app: nobody}}], timeout: %ds, route: [{destination: {host: s0}}]}]}
`,
		"Sidecar": `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: istio-system}
spec: {egress: [{hosts: ["*/*"]}],
  outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: s0.n0.svc.cluster.local, port: {number: %d}}}}
`,
	} {
		t.Run(kind, func(t *testing.T) { checkEviction(t, edit) })
	}
}

func checkEviction(t *testing.T, edit string) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // what is evicted is what was collected
	w, tr := newWorld(t, mesh.Default()), newTranslator(1)
	s := w.apply(services(t, 3)...)
	var table envoy.NameInterner
	var list []string
	c := tr.ResolveCohort(s, testProxies()["web"])
	for r := range tr.Wildcard(s, c, envoy.ClusterType).Shared.All {
		list = append(list, r.Name)
	}
	names, routes := table.Intern(list), table.Intern([]string{"80"})
	most := 0
	for i := range 1000 {
		s = w.apply(objects(t, "edit.yaml", fmt.Appendf(nil, edit, i+1))...)
		tr.Prepare(s)
		c := tr.ResolveCohort(s, testProxies()["web"])
		tr.Wildcard(s, c, envoy.ClusterType)
		tr.Wildcard(s, c, envoy.ListenerType)
		if _, err := tr.Get(s, c, envoy.EndpointType, names); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Get(s, c, envoy.RouteType, routes); err != nil {
			t.Fatal(err)
		}
		most = max(most, tr.CachedSets())
	}
	runtime.KeepAlive(names)
	runtime.KeepAlive(routes)
	t.Log(most, tr.CachedResources())
	if most > 1000 {
		t.Errorf("%d Sets and subscriptions are cached for one stream", most)
	}
}

// TestSetsOfDepartedProxiesAreEvicted: the Sets of proxies that came and went are evicted, also where nothing else
// happens. Proxies choose what they claim about themselves, so there is no bound on their number.
func TestSetsOfDepartedProxiesAreEvicted(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1)
	s := w.apply(services(t, 3)...)
	var table envoy.NameInterner
	clusters, routes := table.Intern([]string{"outbound|80||s0.n0.svc.cluster.local"}), table.Intern([]string{"80"})
	stays := tr.ResolveCohort(s, testProxies()["web"])
	set := tr.Wildcard(s, stays, envoy.ClusterType).Shared
	var last cohort.Client
	for i := range 3000 {
		p := *testProxies()["web"]
		p.NetworkView = []string{fmt.Sprint("made-up-", i)}
		c := tr.ResolveCohort(s, &p)
		if c.Client.Value() == last {
			t.Fatal("not another scope")
		}
		last = c.Client.Value()
		tr.Wildcard(s, c, envoy.ClusterType)
		tr.Wildcard(s, c, envoy.ListenerType)
		for typeURL, names := range map[string]*envoy.Names{envoy.EndpointType: clusters, envoy.RouteType: routes} {
			if _, err := tr.Get(s, c, typeURL, names); err != nil {
				t.Fatal(err)
			}
		}
	}
	const most = 256 * 7
	for end := time.Now().Add(time.Minute); tr.CachedSets() > most && time.Now().Before(end); time.Sleep(time.Millisecond) {
		runtime.GC()
	}
	if n := tr.CachedSets(); n > most {
		t.Errorf("%d Sets and subscriptions are cached for one stream and the last 256", n)
	}
	if tr.Wildcard(s, stays, envoy.ClusterType).Shared != set {
		t.Error("what somebody has was made again")
	}
	runtime.KeepAlive(clusters)
	runtime.KeepAlive(routes)
}

// TestNameListsAreEvicted: lists of names that come and go leave nothing behind while their scope lives.
func TestNameListsAreEvicted(t *testing.T) {
	histories.NoRace(t)
	w, tr := newWorld(t, mesh.Default()), newTranslator(1)
	s := w.apply(services(t, 3)...)
	var table envoy.NameInterner
	c := tr.ResolveCohort(s, testProxies()["web"])
	ask := func(from, to int) {
		for i := from; i < to; i++ {
			names := table.Intern([]string{"outbound|80||s0.n0.svc.cluster.local", fmt.Sprint("x", i)})
			if _, err := tr.Get(s, c, envoy.EndpointType, names); err != nil {
				t.Fatal(err)
			}
			if i%1000 == 0 {
				runtime.GC()
			}
		}
	}
	heap := func() int64 {
		for end := time.Now().Add(time.Minute); tr.CachedSets() > 10 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			runtime.GC()
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	ask(0, 1000)
	before := heap()
	const lists = 20000
	ask(1000, 1000+lists)
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("%d bytes stay of each list that nobody has", grown/lists)
	}
	runtime.KeepAlive(c)
}
