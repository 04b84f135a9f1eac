package progress

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// TestConnectedLater: a version that concerned none of the connected proxies is in force if others connected later. How
// many it concerns is not known. If a finding says that it reaches no proxy, or if it is a deletion, it has no effect.
func TestConnectedLater(t *testing.T) {
	q := Question{Key: web, Generation: 1}
	f, tr := newFake()
	f.proxies = nil
	f.commit(tr, true, change(version(1, "a"))) // the configuration first
	expect(t, "no proxy", tr.Own(q), WithoutEffect, NoProxy)
	f.proxies, f.began = []string{"p.a", "q.a", "r.a"}, []uint64{1, 1, 1}
	expect(t, "proxies that were there", tr.Own(q), WithoutEffect, NoChanges)
	f.began = []uint64{1, 2, 3}
	a := tr.Own(q)
	if expect(t, "two connected later", a, InForce, connectedLater); a.Proxies != (Proxies{Connected: 3, Later: 2}) || a.Counted ||
		a.Numbers() != "all that it concerns of 3 connected proxies" {
		t.Errorf("%+v", a)
	}
	f.idle = map[string]bool{web.String(): true}
	expect(t, "a finding says that it reaches none", tr.Own(q), WithoutEffect, Unreached)
	f.debts = []debt{{from: 2, to: 2, settled: true}}
	if a := tr.Own(q); a.State != InForce || a.Why != "" || !a.Counted || a.Proxies != (Proxies{Connected: 3, Concerned: 1, InForce: 1}) {
		t.Errorf("one that was there is concerned: %+v", a)
	}
	tr.look()
	f.debts, f.idle, f.began = nil, nil, []uint64{1, 3}
	if a := tr.Own(q); a.State != InForce || a.Counted || a.Proxies != (Proxies{Connected: 3, Later: 1}) {
		t.Errorf("it has left, and another has connected: %+v", a)
	}
	f.commit(tr, true, kinds.Change{Key: web})
	f.began = []uint64{9}
	expect(t, "the deletion", tr.Own(Question{Key: web, Deleted: true}), WithoutEffect, NoChanges)
}

// TestConnectedLaterElsewhere: the proxies that connected later are connected to one of two replicas.
func TestConnectedLaterElsewhere(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	f[0].debts, f[1].debts = nil, nil
	f[0].proxies = nil
	expect(t, "none is concerned", tr[0].Ask(t.Context(), q), WithoutEffect, NoChanges)
	f[1].began = []uint64{99}
	a := tr[0].Ask(t.Context(), q)
	if expect(t, "one connected later", a, InForce, connectedLater); a.Counted || a.Proxies != (Proxies{Connected: 1, Later: 1}) {
		t.Errorf("%+v", a)
	}
	f[0].proxies, f[0].debts = []string{"p.a"}, []debt{{from: 2, to: 2, settled: true}}
	want := Proxies{Connected: 2, Concerned: 1, InForce: 1, Later: 1}
	for i, x := range []*Tracker{tr[0], tr[1]} {
		if i == 1 { // the other one asks
			f[1].members, f[1].others = f[0].members, tr[:1]
			x.o.Replicas = f[1]
		}
		if a := x.Ask(t.Context(), q); a.State != InForce || a.Why != "" || !a.Counted || a.Proxies != want {
			t.Errorf("one that was there is concerned, asked %d: %+v", i, a)
		}
	}
}

// TestUncounted: it is not known which proxies an object of the first load concerns, and the answer says so, unless a
// finding says that the object reaches no proxy.
func TestUncounted(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	a := tr.Own(Question{Key: web})
	if expect(t, "the first load", a, InForce, uncounted); a.Counted {
		t.Errorf("%+v", a)
	}
	f.idle = map[string]bool{web.String(): true}
	expect(t, "idle", tr.Own(Question{Key: web}), WithoutEffect, Unreached)
	f.debts = []debt{{from: 0, to: 9, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}} // it may have an earlier version
	expect(t, "idle, and a proxy has resumed", tr.Own(Question{Key: web}), Behind, "")
}
