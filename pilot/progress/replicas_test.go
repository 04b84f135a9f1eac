package progress

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// newFakes returns replicas of which the first one knows the others.
func newFakes(n int) (fakes []*fake, trackers []*Tracker) {
	for range n {
		f, tr := newFake(version(1, "a"))
		fakes, trackers = append(fakes, f), append(trackers, tr)
	}
	for i := 1; i < n; i++ {
		fakes[0].members = append(fakes[0].members, replicas.Member{Peer: replicas.Peer{Name: "r" + string(rune('0'+i))}, Ready: true})
	}
	fakes[0].others = trackers[1:]
	trackers[0].o.Replicas = fakes[0]
	return fakes, trackers
}

// commitAll commits a version at all replicas, each at a revision of its own.
func commitAll(fakes []*fake, trackers []*Tracker, generation int64) {
	for i, f := range fakes {
		f.revision += uint64(10 * i)
		f.commit(trackers[i], true, change(version(generation, "b")))
		f.debts = append(f.debts, debt{from: f.revision, to: f.revision, settled: true, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}})
	}
}

// TestReplicas: the answer of all replicas is the answer of the one that is the furthest from being in force, with the
// numbers of all.
func TestReplicas(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	for name, c := range map[string]struct {
		change func(f []*fake, tr []*Tracker)
		want   State
	}{
		"in force": {func([]*fake, []*Tracker) {}, InForce},
		"behind elsewhere": {func(f []*fake, _ []*Tracker) {
			f[2].debts[0].settled = false
		}, Behind},
		"rejected elsewhere": {func(f []*fake, _ []*Tracker) {
			f[1].debts[0].settled, f[1].debts[0].State = false, xds.Rejected
			f[2].debts[0].settled = false
		}, Rejected},
		"not read elsewhere": {func(f []*fake, tr []*Tracker) {
			f[1], tr[1] = newFake(version(1, "a"))
			f[0].others = tr[1:]
		}, Behind},
		"replaced elsewhere": {func(f []*fake, tr []*Tracker) {
			f[1].commit(tr[1], true, change(version(3, "c")))
		}, Superseded},
		"deleted elsewhere": {func(f []*fake, tr []*Tracker) {
			f[1].unusable[web] = 2
		}, Invalid},
		"without effect elsewhere": {func(f []*fake, _ []*Tracker) {
			f[1].debts = nil
		}, InForce},
		"without effect anywhere": {func(f []*fake, _ []*Tracker) {
			for _, x := range f {
				x.debts = nil
			}
		}, WithoutEffect},
		"one does not answer": {func(f []*fake, _ []*Tracker) {
			f[0].broken["r1"] = errors.New("it did not answer within 2s")
		}, Unknown},
		"one does not answer, one is behind": {func(f []*fake, _ []*Tracker) {
			f[0].broken["r1"] = errors.New("it did not answer within 2s")
			f[2].debts[0].settled = false
		}, Behind},
		"one is of a version without the page": {func(f []*fake, _ []*Tracker) {
			f[0].broken["r1"] = errors.New("its answer is no JSON")
		}, Unknown},
	} {
		f, tr := newFakes(3)
		commitAll(f, tr, 2)
		c.change(f, tr)
		a := tr[0].Ask(t.Context(), q)
		if a.State != c.want || len(a.Replicas) != 2 && c.want != Superseded {
			t.Errorf("%s: %+v", name, a)
		}
		if unnamed := tr[0].Ask(t.Context(), Question{Key: web}); unnamed.State != c.want {
			t.Errorf("%s, without a version: %+v", name, unnamed)
		}
		if name == "in force" && (a.Proxies != (Proxies{Connected: 3, Concerned: 3, InForce: 3}) || len(a.Owing) > 0) {
			t.Errorf("%s: %+v", name, a.Proxies)
		}
		if name == "behind elsewhere" && (len(a.Owing) != 1 || a.Owing[0].Replica != "r2" || a.Proxies.Behind != 1) {
			t.Errorf("%s: %+v", name, a.Owing)
		}
	}
	f, tr := newFakes(2)
	f[1].commit(tr[1], true, change(version(2, "b")))
	expect(t, "read elsewhere only", tr[0].Ask(t.Context(), q), Behind, "")
	expect(t, "read nowhere", tr[0].Ask(t.Context(), Question{Key: web, Generation: 9}), NotSeen, "")
}

// TestMovedProxies: a proxy that has left a replica is awaited at the replica to which it has moved, and where it was
// while it is nowhere.
func TestMovedProxies(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	f[0].debts[0] = debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "moving.a", State: xds.Departed}}
	expect(t, "connected nowhere", tr[0].Ask(t.Context(), q), Behind, "")
	// It connects to the other replica after that has answered: the second question finds it there.
	f[0].arrives = f[1]
	a := tr[0].Ask(t.Context(), q)
	if a.State != Behind || len(a.Owing) != 1 || a.Owing[0].Replica != "r1" || a.Proxies.Behind != 1 {
		t.Errorf("%+v", a)
	}
	f[1].debts[1].settled = true
	settled := Proxies{Connected: 3, Concerned: 2, InForce: 2}
	if a := tr[0].Ask(t.Context(), q); a.State != InForce || a.Proxies != settled || len(a.Owing) > 0 {
		t.Errorf("%+v", a)
	}
	f[0].debts = append(f[0].debts, debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}})
	expect(t, "another one is behind", tr[0].Ask(t.Context(), q), Behind, "")
}

// TestWrittenAgain: a version that is written again, after a deletion or another content, is not in force while a
// replica has only read the version before. It is not superseded there either.
func TestWrittenAgain(t *testing.T) {
	service := func(content string) *kinds.Object {
		return &kinds.Object{Key: kinds.Key{Kind: kinds.Service, Namespace: "a", Name: "web"}, UID: "1",
			Labels: map[string]string{"content": content}, Spec: &corev1.Service{}}
	}
	again := func(uid string) *kinds.Object {
		o := version(1, "b")
		o.UID = uid
		return o
	}
	for name, list := range map[string][]*kinds.Object{
		"the generation of another object": {again("1"), nil, again("2")},
		"a content":                        {service("x"), service("y"), service("x")},
		"a deletion":                       {again("1"), nil, again("2"), nil},
	} {
		f, tr := newFakes(2)
		put := func(i int, o *kinds.Object) {
			c := kinds.Change{Key: list[0].Key, Object: o}
			f[i].commit(tr[i], true, c)
		}
		for i := range f {
			for _, o := range list[:len(list)-1] {
				put(i, o)
			}
		}
		last := list[len(list)-1]
		put(0, last)
		f[0].debts = []debt{{from: f[0].revision, to: f[0].revision, settled: true}}
		f[1].debts = []debt{{from: 1, to: f[1].revision, settled: true}}
		a := tr[0].Ask(t.Context(), Question{Key: list[0].Key})
		expect(t, name, a, Behind, "")
		if last != nil && last.Generation > 0 { // the question of a client that knows which one it means
			expect(t, name+": a client", tr[1].Own(Question{Key: last.Key, Generation: 1, UID: "2"}), NotSeen, "")
			expect(t, name+": of before", tr[0].Own(Question{Key: last.Key, Generation: 1, UID: "1"}), Superseded, "")
		}
		put(1, last)
		f[1].debts = append(f[1].debts, debt{from: f[1].revision, to: f[1].revision, settled: true})
		expect(t, name+": both have read it", tr[0].Ask(t.Context(), Question{Key: list[0].Key}), InForce, "")
	}
}

// TestProxiesOfTheSameName: a proxy that has left a replica is awaited, although one of its name, of another cluster,
// is connected.
func TestProxiesOfTheSameName(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	f[0].debts[0] = debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "web-0.a", Cluster: "east", State: xds.Departed}}
	f[1].proxies = append(f[1].proxies, "web-0.a/west")
	a := tr[0].Ask(t.Context(), q)
	if a.State != Behind || len(a.Owing) != 1 || a.Owing[0].Cluster != "east" {
		t.Errorf("%+v", a)
	}
	f[1].proxies = append(f[1].proxies, "web-0.a/east")
	expect(t, "it is connected", tr[0].Ask(t.Context(), q), InForce, "")
}

// TestLeavesAgain: a proxy that was connected to the other replica, and has left that before it was asked what is owed
// there, is awaited.
func TestLeavesAgain(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	gone := debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "moving.a", State: xds.Departed}}
	f[0].debts[0] = gone
	f[1].proxies, f[1].debts = append(f[1].proxies, "moving.a"), append(f[1].debts, gone)
	a := tr[0].Ask(t.Context(), q)
	if a.State != Behind || a.Proxies.Behind != 2 {
		t.Errorf("%+v", a)
	}
}

// TestSilentProxies: a proxy that left long ago, and whose workload still exists, makes the answer Unknown and is
// named. If it is connected to another replica, it does not, and its departure is forgotten.
func TestSilentProxies(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	f[0].debts[0] = debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "held.a", State: xds.Silent}}
	for _, a := range []Answer{tr[0].Own(q), tr[0].Ask(t.Context(), q)} {
		if expect(t, "it is nowhere", a, Unknown, "held.a"); len(a.Owing) != 1 || a.Owing[0].State != departed {
			t.Errorf("%+v", a)
		}
		if a = a.For("b"); strings.Contains(a.Why, "held.a") || !strings.HasPrefix(a.Why, whySilent) {
			t.Errorf("a reader of another namespace sees its name: %+v", a)
		}
	}
	f[0].debts = append(f[0].debts, debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}})
	expect(t, "another one is behind", tr[0].Ask(t.Context(), q), Behind, "")
	f[0].debts = f[0].debts[:len(f[0].debts)-1]
	tr[0].forgetMoved(t.Context())
	expect(t, "it is still nowhere", tr[0].Own(q), Unknown, "held.a")
	f[1].proxies = append(f[1].proxies, "held.a")
	if a := tr[0].Ask(t.Context(), q); a.State != InForce || a.Why != "" {
		t.Errorf("it is connected: %+v", a)
	}
	tr[0].forgetMoved(t.Context())
	if a := tr[0].Own(q); len(a.Owing) > 0 || a.State == Unknown {
		t.Errorf("it is forgotten: %+v", a)
	}
}

// TestLostDepartures: a proxy that has moved does not hide that others have left, of which nothing is known.
func TestLostDepartures(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	f[0].debts[0] = debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "moving.a", State: xds.Departed}}
	f[0].unknown = true
	f[1].proxies = append(f[1].proxies, "moving.a")
	expect(t, "more have left", tr[0].Ask(t.Context(), q), Unknown, "so many proxies")
}

// TestEndedReplicas: after a replica has ended or started again, its proxies may be connected to none for a while.
func TestEndedReplicas(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	for name, end := range map[string]func(f []*fake, tr []*Tracker){
		"removed": func(f []*fake, _ []*Tracker) { f[0].members = nil },
		"not ready, and refuses connections": func(f []*fake, _ []*Tracker) {
			f[0].members[0].Ready = false
			f[0].refuses["r1"] = true
		},
		"started again": func(f []*fake, tr []*Tracker) {
			tr[1].started = f[1].now.Add(-time.Second)
		},
	} {
		f, tr := newFakes(2)
		commitAll(f, tr, 2)
		tr[0].members.update(f[0].members, f[0].now.Add(-time.Hour))
		tr[0].members.served["r1"] = f[0].now.Add(-time.Hour)
		tr[1].started = f[1].now.Add(-time.Hour)
		expect(t, name+": before", tr[0].Ask(t.Context(), q), InForce, "")
		end(f, tr)
		expect(t, name, tr[0].Ask(t.Context(), q), Unknown, "r1")
		if f[0].expected != 1 {
			t.Errorf("%s: proxies of Pods were expected %d times", name, f[0].expected)
		}
		for _, x := range f {
			x.now = x.now.Add(departureTime + time.Second)
		}
		expect(t, name+": later", tr[0].Ask(t.Context(), q), InForce, "")
	}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	tr[0].members.served["r1"] = f[0].now.Add(-time.Hour)
	tr[1].started = f[1].now.Add(-time.Hour)
	for range 3 { // one that is not ready any more, and can be asked
		f[0].members[0].Ready = false
		expect(t, "not ready", tr[0].Ask(t.Context(), q), InForce, "")
		f[0].now = f[0].now.Add(time.Hour)
	}
	f[0].members = nil
	expect(t, "it ends in the end", tr[0].Ask(t.Context(), q), Unknown, "r1")

	f, tr = newFakes(3)
	commitAll(f, tr, 2)
	f[1].members = []replicas.Member{{Peer: replicas.Peer{Name: "own"}, Ready: true}}
	f[1].others, tr[1].o.Replicas = tr[:1], f[1]
	tr[1].members.served["own"] = f[1].now.Add(-time.Hour)
	expect(t, "this one has started again", tr[0].Ask(t.Context(), q), Unknown, "own")

	f, tr = newFakes(1)
	commitAll(f, tr, 2)
	f[0].members = []replicas.Member{{Peer: replicas.Peer{Name: "r1"}}} // it starts, and refuses connections
	f[0].broken["r1"] = errors.New("failed to reach it")
	f[0].others = []*Tracker{nil}
	expect(t, "one that cannot be asked", tr[0].Ask(t.Context(), q), Unknown, "r1")
}

// TestAfterAStart: after all replicas have started, proxies of the processes before may be connected to none, if there
// were any.
func TestAfterAStart(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	for n := 1; n <= 2; n++ {
		f, tr := newFakes(n)
		if n == 1 {
			tr[0].o.Replicas = nil
		}
		commitAll(f, tr, 2)
		expect(t, "new proxies", tr[0].Ask(t.Context(), q), InForce, "")
		for _, x := range f {
			x.proxies = nil
		}
		expect(t, "no proxies yet", tr[0].Ask(t.Context(), q), Unknown, "no proxy has connected yet")
		for _, x := range f {
			x.proxies = []string{"p.a"}
		}
		f[n-1].resumed = true
		expect(t, "a proxy that was connected before", tr[0].Ask(t.Context(), q), Unknown, "no replica has been running")
		tr[n-1].started = f[0].now.Add(-departureTime)
		expect(t, "one is older", tr[0].Ask(t.Context(), q), InForce, "")
	}
}

// TestMissingProxies: a proxy that a Pod runs and that has not connected lacks all versions, and the answer names it.
func TestMissingProxies(t *testing.T) {
	q := Question{Key: web, Generation: 2}
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	expect(t, "none", tr[0].Ask(t.Context(), q), InForce, "")
	f[1].missing = []xds.Owing{{Proxy: "held.a", State: xds.Departed, Message: "its Pod runs"}}
	a := tr[0].Ask(t.Context(), q)
	if a.State != Behind || len(a.Owing) != 1 || a.Owing[0].Proxy != "held.a" || a.Owing[0].Message != "its Pod runs" {
		t.Errorf("%+v", a)
	}
	if b := tr[1].Briefs([]kinds.Key{web}); b[0].State != Behind {
		t.Errorf("in short: %+v", b)
	}
	f[1].missing[0].State = xds.Silent
	expect(t, "for long", tr[0].Ask(t.Context(), q), Unknown, "held.a")
	f[0].proxies = append(f[0].proxies, "held.a")
	f[0].debts = append(f[0].debts, debt{from: 0, to: 99, settled: true})
	expect(t, "connected to the other one", tr[0].Ask(t.Context(), q), InForce, "")
}

// TestMergedHistory: numbers are of all replicas, if all know the version.
func TestMergedHistory(t *testing.T) {
	f, tr := newFakes(2)
	commitAll(f, tr, 2)
	for i := range tr {
		f[i].now = f[i].now.Add(time.Duration(i+1) * time.Second)
		tr[i].look()
	}
	h := tr[0].AskHistory(t.Context(), web)
	if v := h.Versions[0]; v.Proxies != 2 || !v.Counted || v.Took == nil || *v.Took != 2 || len(h.Replicas) != 1 {
		t.Errorf("%+v", h)
	}
	f[0].commit(tr[0], true, change(version(3, "c")))
	tr[0].look()
	h = tr[0].AskHistory(t.Context(), web)
	if v := h.Versions[0]; v.Generation != 3 || v.Counted || v.Took != nil {
		t.Errorf("%+v", v)
	}
	f[0].broken["r1"] = errors.New("away")
	if h = tr[0].AskHistory(t.Context(), web); h.Replicas[0].Error != "away" || h.Versions[0].Counted {
		t.Errorf("%+v", h)
	}
}

// TestWorse: the order of states has all of them.
func TestWorse(t *testing.T) {
	list := states()
	for _, a := range list {
		for _, b := range list {
			w := worse(a, b)
			if w != worse(b, a) || w == InForce && (slices.Contains([]State{a, b}, Unknown) || slices.Contains([]State{a, b}, Behind)) {
				t.Errorf("%s and %s are %s", a, b, w)
			}
		}
	}
}
