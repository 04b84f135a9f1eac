package translate_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/histories"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
)

// TestUnknownRouteConfigurations: route configurations without a listener are nearly empty, however many a client asks
// for, and are not cached.
func TestUnknownRouteConfigurations(t *testing.T) {
	histories.NoRace(t)
	for who, forms := range map[string][]string{"web": {"/x%d", "@x%d", "/x:%d"}, "gateway": {"x%d", "http.80.10.0.0.%d", "/x%d"}} {
		for _, form := range forms {
			w, tr := newWorld(t, mesh.Default()), newTranslator(64<<20)
			s := w.apply(services(t, 50)...)
			c, before := tr.ResolveCohort(s, testProxies()[who]), tr.CachedSets()
			var table envoy.NameInterner
			var list []string
			for i := range 200 {
				list = append(list, fmt.Sprintf(form, i))
			}
			names := table.Intern(list)
			u, err := tr.Get(s, c, envoy.RouteType, names)
			if err != nil || u.Shared.Len() != names.Len() {
				t.Fatalf("%s %s: %d resources, %v", who, form, u.Shared.Len(), err)
			}
			for r := range u.All {
				if r.Size() > 2000 {
					t.Fatalf("%s: %s has %d bytes", who, r.Name, r.Size())
				}
			}
			s = w.apply(objects(t, "sidecar.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, "+
				"namespace: elsewhere}\nspec: {egress: [{hosts: [./*]}]}\n"))...)
			if again, err := tr.Get(s, c, envoy.RouteType, names); err != nil || again != u {
				t.Errorf("%s %s: after a change elsewhere it is another Set (%v)", who, form, err)
			}
			if n := tr.CachedSets(); n > before+1 {
				t.Errorf("%s %s: %d are cached, %d before", who, form, n, before)
			}
			runtime.KeepAlive(names)
		}
	}
}

// TestUnknownRouteConfigurationsCostWhatCounts checks that a route configuration without a listener takes no more
// memory than counts for its name.
func TestUnknownRouteConfigurationsCostWhatCounts(t *testing.T) {
	histories.NoRace(t)
	const each = 3000
	for who, forms := range map[string][]string{"web": {"x%d.example.com:80", "%d", "@x%d"}, "stock": {"x%d.example.com:80", "%d"},
		"gateway": {"x%d", "http.%d"}} {
		for _, form := range forms {
			w, tr := newWorld(t, mesh.Default()), newTranslator(1)
			s := w.apply(services(t, 10)...)
			c := tr.ResolveCohort(s, testProxies()[who])
			var table envoy.NameInterner
			var list []string
			for i := range each {
				list = append(list, fmt.Sprintf(form, 20000+i))
			}
			names := table.Intern(list)
			heap := func() int {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int(m.HeapAlloc)
			}
			before := heap()
			u, err := tr.Get(s, c, envoy.RouteType, names)
			if err != nil || u.Shared.Len() != each {
				t.Fatalf("%s %s: %d resources, %v", who, form, u.Shared.Len(), err)
			}
			grown, most := heap()-before, session.CostOfNames(envoy.TypeOf(envoy.RouteType), names)-names.Bytes()
			t.Logf("%s %s: %d bytes a name", who, form, grown/each)
			if grown > most {
				t.Errorf("%s %s: %d bytes a name, and %d count", who, form, grown/each, most/each)
			}
			runtime.KeepAlive(u)
			runtime.KeepAlive(names)
		}
	}
}
