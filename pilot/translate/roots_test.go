package translate_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// TestRoots holds that the roots of a Snapshot are one ProxyConfig without a name, the same Set for each proxy until
// they change, and that there is none without roots.
func TestRoots(t *testing.T) {
	w, tr := newWorld(t, mesh.Default()), newTranslator(1<<20)
	sidecar := proxy(t, []byte(`{"id": "sidecar~10.1.0.11~web-0.a~a.svc.cluster.local"}`))
	router := proxy(t, []byte(`{"id": "router~10.1.0.13~gw-0.b~b.svc.cluster.local"}`))
	sent := func(s *snapshot.Snapshot) envoy.Union {
		tr.Prepare(s)
		set := tr.Wildcard(s, tr.ResolveCohort(s, sidecar), envoy.ProxyConfigType)
		if other := tr.Wildcard(s, tr.ResolveCohort(s, router), envoy.ProxyConfigType); other != set {
			t.Errorf("two proxies are sent two Sets")
		}
		return set
	}
	check := func(set envoy.Union, want ...string) {
		t.Helper()
		var got []string
		for r := range set.All {
			c := &meshv1alpha1.ProxyConfig{}
			if err := proto.Unmarshal(r.Value(), c); err != nil || r.Name != "" ||
				proto.Size(c) != proto.Size(&meshv1alpha1.ProxyConfig{CaCertificatesPem: c.CaCertificatesPem}) {
				t.Errorf("%q: %v, %v", r.Name, c, err)
			}
			got = append(got, c.CaCertificatesPem...)
		}
		if !slices.Equal(got, want) || len(want) > 0 && set.Shared.Len() != 1 {
			t.Errorf("%q in %d resources, want %q", got, set.Shared.Len(), want)
		}
	}
	check(sent(w.apply()))
	w.builder.SetRoots([]string{"own", "second"})
	first := sent(w.apply())
	check(first, "own", "second")
	w.builder.SetRoots([]string{"own", "second"})
	w.builder.SetMesh(mesh.Default())
	if next := sent(w.apply(objects(t, "names.yaml", read(t, "testdata", "names.yaml"))...)); next != first {
		t.Error("other changes make another Set")
	}
	w.builder.SetRoots([]string{"second", "own"})
	check(sent(w.apply()), "second", "own")
	w.builder.SetRoots([]string{"third"})
	tr.Prepare(w.apply()) // nobody asks at this Snapshot
	check(sent(w.apply(kinds.Change{Key: kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "api"}})), "third")
	w.builder.SetRoots(nil)
	check(sent(w.apply()))
}
