package translate_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestUnknownNames: any client may subscribe to names that do not exist. Nothing of them stays once it unsubscribes;
// until then they are the same Set whatever else changes.
func TestUnknownNames(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(64<<20)
	s := w.apply(services(t, 3)...)
	c := tr.ResolveCohort(s, testProxies()["web"])
	for form, typeURL := range map[string]string{
		"outbound|80||unknown-%d.example.com": envoy.EndpointType, "inbound|%d||": envoy.RouteType, "unknown-%d.example.com:80": envoy.RouteType,
	} {
		before := tr.CachedResources()
		var table envoy.NameInterner
		var list []string
		for i := range 1000 {
			list = append(list, fmt.Sprintf(form, i))
		}
		names := table.Intern(list)
		u, err := tr.Get(s, c, typeURL, names)
		if n := len(slices.Collect(u.All)); err != nil || n != names.Len() || typeURL == envoy.EndpointType && u.Shared.Len()+u.Own.Len() > 0 {
			t.Fatalf("%s: %d resources, %d of them in memory, %v", form, n, u.Shared.Len()+u.Own.Len(), err)
		}
		s = w.apply(objects(t, "sidecar.yaml", fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: Sidecar\n"+
			"metadata: {name: s, namespace: %s}\n"+
			"spec: {egress: [{hosts: [./*]}]}\n", "elsewhere"))...)
		if again, err := tr.Get(s, c, typeURL, names); err != nil || again != u {
			t.Errorf("%s: after a change elsewhere it is another Set (%v)", form, err)
		}
		if n := tr.CachedResources(); n > before+1 {
			t.Errorf("%s: %d are remembered, %d before", form, n, before)
		}
		runtime.KeepAlive(names)
		for deadline := time.Now().Add(2 * time.Minute); tr.CachedResources() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d are remembered, %d before", form, tr.CachedResources(), before)
			}
			runtime.GC()
		}
	}
}
