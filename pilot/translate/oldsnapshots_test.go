package translate_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestOldSnapshotsAreCollected: a Translator holds what Snapshots changed, but only the newest Snapshot itself.
func TestOldSnapshotsAreCollected(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(64<<20)
	var old []weak.Pointer[snapshot.Snapshot]
	s := w.apply(services(t, 3)...)
	for i := range 40 {
		tr.Prepare(s)
		tr.Wildcard(s, tr.ResolveCohort(s, testProxies()["web"]), envoy.ClusterType)
		old = append(old, weak.Make(s))
		s = w.apply(objects(t, "vs.yaml", fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: VirtualService\n"+
			"metadata: {name: v, namespace: elsewhere}\n"+
			"spec: {hosts: [v%d.example.com], http: [{route: [{destination: {host: v.example.com}}]}]}\n", i))...)
	}
	tr.Prepare(s)
	alive := 0
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		runtime.GC()
		alive = 0
		for _, p := range old {
			if p.Value() != nil {
				alive++
			}
		}
		if alive <= 2 {
			return
		}
	}
	t.Errorf("%d of %d old Snapshots are still there", alive, len(old))
	runtime.KeepAlive(tr)
	runtime.KeepAlive(s)
}
