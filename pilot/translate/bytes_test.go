package translate_test

import (
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestBytesOfCohorts checks that the bytes that are kept for cohorts beside the first one are none for proxies of one
// cohort, and of cohorts that have nothing in common about what the heap grows by.
func TestBytesOfCohorts(t *testing.T) {
	histories.NoRace(t)
	w, tr := newWorld(t, mesh.Default()), newTranslator(1)
	s := w.apply(services(t, 100)...)
	tr.Prepare(s)
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	serve := func(change func(*node.Proxy)) cohort.Key {
		p := *testProxies()["web"]
		change(&p)
		c := tr.ResolveCohort(s, &p)
		tr.Wildcard(s, c, envoy.ClusterType)
		tr.Wildcard(s, c, envoy.ListenerType)
		return c.Cached()
	}
	all := []cohort.Key{serve(func(*node.Proxy) {})}
	if n := tr.Bytes(all); n != 0 {
		t.Errorf("one cohort takes %d bytes beside itself", n)
	}
	for what, change := range map[string]func(p *node.Proxy, i int){
		"the same resources": func(p *node.Proxy, i int) { p.Domain = fmt.Sprintf("a%d.svc.cluster.local", i) },
		"other listeners": func(p *node.Proxy, i int) {
			tag := &meshv1alpha1.Tracing_CustomTag{
				Type: &meshv1alpha1.Tracing_CustomTag_Literal{Literal: &meshv1alpha1.Tracing_Literal{Value: fmt.Sprint(i)}},
			}
			text, err := proto.Marshal(&meshv1alpha1.ProxyConfig{Tracing: &meshv1alpha1.Tracing{
				Tracer:     &meshv1alpha1.Tracing_Zipkin_{Zipkin: &meshv1alpha1.Tracing_Zipkin{Address: "zipkin.a:9411"}},
				CustomTags: map[string]*meshv1alpha1.Tracing_CustomTag{"tag": tag},
			}})
			must.Succeed(t, err)
			p.Settings = string(text)
		},
	} {
		cohorts := all
		before := heap()
		for i := range 20 {
			cohorts = append(cohorts, serve(func(p *node.Proxy) { change(p, i) }))
		}
		grown, n := heap()-before, tr.Bytes(cohorts)
		t.Logf("%s: the heap grows by %d bytes, %d are measured", what, grown, n)
		if n < grown/2 || n > 2*grown {
			t.Errorf("%s: %d bytes are measured where the heap grows by %d", what, n, grown)
		}
		if again := tr.Bytes(append(cohorts, cohorts[1:]...)); again != n {
			t.Errorf("%s: with each cohort twice %d bytes are measured, not %d", what, again, n)
		}
		runtime.KeepAlive(cohorts)
	}
}
