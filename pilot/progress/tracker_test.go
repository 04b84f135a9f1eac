package progress

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/pilot/archive"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var web = kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web"}

// debt is what one client owes: revisions from the first to the last.
type debt struct {
	from, to uint64
	xds.Owing
	settled bool
}

// fake is a server without streams: its debts are given.
type fake struct {
	published uint64
	unknown   bool // too many proxies have departed
	debts     []debt
	proxies   []string // connected
	began     []uint64 // revisions that were published when proxies connected
	idle      map[string]bool
	asked     int

	objects    map[kinds.Key]*kinds.Object
	origins    map[kinds.Key]*kinds.Object
	hidden     map[kinds.Key]bool
	pending    map[kinds.Key]bool
	selections uint64
	unusable   map[kinds.Key]int64
	unread     string
	unneeded   string
	revision   uint64
	now        time.Time

	members  []replicas.Member
	others   []*Tracker
	broken   map[string]error
	refuses  map[string]bool // members that refuse connections
	resumed  bool
	missing  []xds.Owing
	expected int   // calls of Expect
	arrives  *fake // to which moving.a connects, and owes something, after the others have answered
}

func (f *fake) Progress(revision uint64, upto bool, most int) xds.Progress {
	f.asked++
	p := xds.Progress{Published: f.published >= revision, Connected: len(f.proxies), Counted: true, Unknown: f.unknown, Resumed: f.resumed}
	for _, d := range f.debts {
		if d.from > revision || d.to < revision && !upto {
			continue
		}
		p.Concerned++
		switch {
		case d.settled:
			p.Settled++
		case len(p.Owing) < most:
			p.Owing = append(p.Owing, d.Owing)
		default:
			p.More++
		}
	}
	return p
}

func (f *fake) Connected(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !slices.Contains(f.proxies, id) })
}

func (f *fake) Departed(after string, most int) (names []string) {
	for _, d := range f.debts {
		if name := d.Name(); (d.State == xds.Departed || d.State == xds.Silent) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), most)]
}

func (f *fake) Forget(names []string, _ time.Time) {
	f.debts = slices.DeleteFunc(f.debts, func(d debt) bool { return d.State != xds.Behind && slices.Contains(names, d.Name()) })
}

func (f *fake) Expect() { f.expected++ }

func (f *fake) Missing(most int) ([]xds.Owing, int) {
	return f.missing[:min(most, len(f.missing))], len(f.missing)
}

func (f *fake) Later(revision uint64) (n int, newest uint64) {
	for _, x := range f.began {
		if newest = max(newest, x); x >= revision {
			n++
		}
	}
	return n, newest
}

func (f *fake) Idle() map[string]bool { return f.idle }

func (f *fake) Stored(k kinds.Key) (*kinds.Object, bool, bool) {
	o := f.objects[k]
	return o, o != nil && !f.hidden[k], f.pending[k]
}

func (f *fake) Origin(k kinds.Key) *kinds.Object {
	if o := f.origins[k]; o != nil {
		return o
	}
	return f.objects[k]
}

func (f *fake) Now() time.Time { return f.now }

func (f *fake) Selections() uint64 { return f.selections }

func (f *fake) Unusable(k kinds.Key) (int64, bool) {
	g, is := f.unusable[k]
	return g, is
}

func (f *fake) FindingsAbout(k kinds.Key) []diag.Diagnostic {
	if _, is := f.unusable[k]; is {
		return []diag.Diagnostic{{Code: "Unusable", Object: k.String()}}
	}
	return nil
}

func (f *fake) Unread(kinds.Key) string { return f.unread }

func (f *fake) Unneeded(kinds.Key) string { return f.unneeded }

func (*fake) Affected(*snapshot.Snapshot) bool { return true }

func (f *fake) Members() []replicas.Member { return f.members }

func (f *fake) AskMembers(_ context.Context, question string) (list []replicas.Answer) {
	page, query, _ := strings.Cut(question, "?")
	for i, m := range f.members {
		if f.refuses[m.Name] {
			continue
		}
		a := replicas.Answer{Peer: m.Peer, Err: f.broken[m.Name]}
		if a.Err == nil {
			var v any
			values, err := url.ParseQuery(query)
			if err != nil || values.Get("scope") != "self" {
				panic(query)
			}
			k, err := f.others[i].Find(values.Get("object"), values.Get("cluster"))
			if err != nil {
				panic(err)
			}
			switch page {
			case InForcePage:
				v = f.others[i].OwnOf(asked(k, values))
			case HistoryPage:
				v = f.others[i].OwnHistory(k)
			}
			a.JSON, _ = json.Marshal(v)
		}
		list = append(list, a)
	}
	if to := f.arrives; to != nil {
		to.proxies = append(to.proxies, "moving.a")
		to.debts = append(to.debts, debt{from: 0, to: 99, Owing: xds.Owing{Proxy: "moving.a", State: xds.Behind}})
		f.arrives = nil
	}
	return list
}

func asked(k kinds.Key, v url.Values) (Question, Asker) {
	q := Question{Key: k, UID: v.Get("uid"), Version: v.Get("version"), Deleted: v.Get("deleted") == "true"}
	_ = json.Unmarshal([]byte(v.Get("generation")), &q.Generation)
	return q, AskerOf(v)
}

func emptyFake() *fake {
	return &fake{objects: map[kinds.Key]*kinds.Object{}, now: time.Unix(1000, 0), proxies: []string{"p.a"}, broken: map[string]error{},
		refuses: map[string]bool{},
		hidden:  map[kinds.Key]bool{}, pending: map[kinds.Key]bool{}, unusable: map[kinds.Key]int64{}, origins: map[kinds.Key]*kinds.Object{}}
}

// newFake returns a server whose first load has some objects, at revision 1.
func newFake(objects ...*kinds.Object) (*fake, *Tracker) {
	f := emptyFake()
	t := New(Options{Streams: f, Archive: archive.New(archive.Options{}), World: f, Judge: f, Name: "own",
		Clock: f})
	var batch []kinds.Change
	for _, o := range objects {
		batch = append(batch, kinds.Change{Key: o.Key, Object: o})
	}
	f.commit(t, true, batch...)
	return f, t
}

// commit applies a batch. The snapshot is a new one, if it changes anything, and is published.
func (f *fake) commit(t *Tracker, changes bool, batch ...kinds.Change) {
	t.Begin(batch)
	for _, c := range batch {
		if f.objects[c.Key] = c.Object; c.Object == nil {
			delete(f.objects, c.Key)
		}
	}
	if changes {
		f.revision++
	}
	t.Commit(&snapshot.Snapshot{Revision: f.revision}, batch, f.now)
	f.published = f.revision
}

func version(generation int64, host string) *kinds.Object {
	return &kinds.Object{Key: web, UID: "1", Generation: generation, Spec: &networkingv1.VirtualService{Hosts: []string{host}}}
}

func change(o *kinds.Object) kinds.Change { return kinds.Change{Key: o.Key, Object: o} }

func expect(t *testing.T, what string, a Answer, want State, why string) {
	t.Helper()
	if a.State != want || !strings.Contains(a.Why, why) {
		t.Errorf("%s: %q (%s), want %q: %+v", what, a.State, a.Why, want, a)
	}
}

// TestStates: the answers about one object while it is created, changed, rejected and deleted.
func TestStates(t *testing.T) {
	f, tr := newFake()
	ask := func(generation int64) Answer { return tr.Own(Question{Key: web, Generation: generation}) }
	deleted := Question{Key: web, Deleted: true}
	expect(t, "before it is read", ask(0), NotSeen, "")
	expect(t, "its deletion", tr.Own(deleted), InForce, "")

	f.debts = []debt{{from: 2, to: 2, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind, Since: time.Unix(1000, 0)}}}
	f.commit(tr, true, change(version(1, "a")))
	expect(t, "behind", ask(1), Behind, "")
	expect(t, "its deletion", tr.Own(deleted), NotSeen, "")
	if a := ask(0); a.Generation != 1 || a.Proxies != (Proxies{Connected: 1, Concerned: 1, Behind: 1}) || a.Owing[0].Proxy != "p.a" ||
		a.Since == nil || *a.Since != f.now {
		t.Errorf("%+v", a)
	}
	expect(t, "a version that is not read", ask(2), NotSeen, "")
	f.debts[0].settled = true
	expect(t, "settled", ask(1), InForce, "")
	f.debts = append(f.debts, debt{from: 3, to: 4, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}})
	expect(t, "a debt of later revisions", ask(1), InForce, "")

	f.commit(tr, true, change(version(2, "b")))
	if a := ask(1); a.State != Superseded || a.SupersededBy != 2 {
		t.Errorf("%+v", a)
	}
	f.debts[1].State, f.debts[1].Message = xds.Rejected, "no such cluster"
	f.debts = append(f.debts, debt{from: 3, to: 3, Owing: xds.Owing{Proxy: "q.a", State: xds.Behind}})
	if a := ask(2); a.State != Rejected || a.Owing[0].Message != "no such cluster" || a.Proxies.Rejected != 1 || a.Proxies.Behind != 1 {
		t.Errorf("%+v", a)
	}
	f.unknown = true
	expect(t, "rejected, and too many have left", ask(2), Rejected, "")
	f.unknown = false
	f.commit(tr, true, kinds.Change{Key: web})
	expect(t, "deleted", ask(2), Superseded, "deleted")
	if a := ask(0); a.State != Rejected || !a.Deleted { // the debt goes on
		t.Errorf("%+v", a)
	}
	f.debts = []debt{{from: 4, to: 4, settled: true}}
	expect(t, "the removals are acknowledged", tr.Own(deleted), InForce, "")
	f.unknown = true
	expect(t, "too many have left", tr.Own(deleted), Unknown, "left lately")
	f.unknown = false
	expect(t, "a version that never was", ask(7), NotSeen, "")
	f.commit(tr, true, change(version(1, "a")))
	expect(t, "created again", ask(1), WithoutEffect, "it changed nothing")
	expect(t, "an older generation with a larger number", ask(2), Superseded, "")
	f.published = 1
	expect(t, "not published", ask(1), Behind, "not offered")
	f.published, f.proxies = 9, nil
	expect(t, "without proxies", ask(1), WithoutEffect, "no proxy")
}

// TestBetweenBeginAndCommit: while a batch is applied, and while a newer change is on its way, the answer about its
// objects is not of the version before.
func TestBetweenBeginAndCommit(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	next := version(2, "b")
	f.pending[web] = true
	expect(t, "read", tr.Own(Question{Key: web}), Behind, "not committed")
	expect(t, "read", tr.Own(Question{Key: web, Generation: 2}), NotSeen, "")
	tr.Begin([]kinds.Change{change(next)})
	f.objects[web] = next
	f.pending[web] = false
	expect(t, "being committed", tr.Own(Question{Key: web}), Behind, "not committed")
	expect(t, "being committed", tr.Own(Question{Key: web, Generation: 2}), NotSeen, "")
	tr.Commit(&snapshot.Snapshot{Revision: 2}, []kinds.Change{change(next)}, f.now)
	expect(t, "not published", tr.Own(Question{Key: web, Generation: 2}), Behind, "not offered")
	f.published, f.debts = 2, []debt{{from: 2, to: 2, settled: true}}
	expect(t, "published", tr.Own(Question{Key: web, Generation: 2}), InForce, "")
	empty := New(Options{Streams: f, Archive: archive.New(archive.Options{}), World: f, Judge: f})
	expect(t, "before the first load", empty.Own(Question{Key: web}), NotSeen, "not read yet")
}

// TestFirstLoad: objects of the first load are kept nowhere, and are in force when all debts from the start are
// settled.
func TestFirstLoad(t *testing.T) {
	other := version(1, "x")
	other.Name = "other"
	f, tr := newFake(version(5, "a"), other)
	if tr.o.Archive.Has(web) || len(tr.OwnHistory(web).Versions) > 0 || len(tr.open) > 0 {
		t.Error("the first load is kept")
	}
	f.debts = []debt{{from: 0, to: 3, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}} // it has resumed
	expect(t, "a proxy that has resumed", tr.Own(Question{Key: web, Generation: 5}), Behind, "")
	expect(t, "an older one", tr.Own(Question{Key: web, Generation: 4}), Superseded, "")
	f.debts[0].settled = true
	expect(t, "settled", tr.Own(Question{Key: web, Generation: 5}), InForce, "")
	f.commit(tr, true, change(version(6, "b")))
	f.commit(tr, false, change(version(7, "b"))) // the commit changes nothing in the snapshot
	f.debts = []debt{{from: 2, to: 2, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}}
	expect(t, "a version with the same effect", tr.Own(Question{Key: web, Generation: 7}), Behind, "")
	expect(t, "the first one", tr.Own(Question{Key: web, Generation: 5}), Superseded, "")
	if tr.o.Archive.Has(other.Key) {
		t.Error("an object that did not change is kept")
	}
}

// TestInvalid: a version that is not used as it is written is never in force, and the version that stays in force is.
func TestInvalid(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	f.commit(tr, true, change(version(2, "b")))
	f.debts = []debt{{from: 2, to: 2, settled: true}}
	f.unusable[web] = 3 // and the last good one stays
	expect(t, "the last good one", tr.Own(Question{Key: web, Generation: 2}), InForce, "")
	for _, generation := range []int64{0, 3} {
		a := tr.Own(Question{Key: web, Generation: generation})
		if expect(t, "refused", a, Invalid, "as it is written"); a.Generation != 3 || len(a.Findings) != 1 {
			t.Errorf("%+v", a)
		}
	}
	expect(t, "its correction", tr.Own(Question{Key: web, Generation: 4}), NotSeen, "")
	expect(t, "an older one", tr.Own(Question{Key: web, Generation: 1}), Superseded, "")
	f.commit(tr, true, change(version(3, "partly")))
	expect(t, "partly in force", tr.Own(Question{Key: web, Generation: 3}), Invalid, "")
	delete(f.unusable, web)
	f.commit(tr, true, change(version(4, "c")))
	f.debts = []debt{{from: 4, to: 4, settled: true}}
	expect(t, "corrected", tr.Own(Question{Key: web, Generation: 4}), InForce, "")

	fresh := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "fresh"}
	f.unusable[fresh] = 1 // and nothing is in force
	expect(t, "left out", tr.Own(Question{Key: fresh, Generation: 1}), Invalid, "")
	expect(t, "left out", tr.Own(Question{Key: fresh}), Invalid, "")
	expect(t, "its correction", tr.Own(Question{Key: fresh, Generation: 2}), NotSeen, "")
}

// TestHidden: an object that the filter hides has no effect, once proxies have dropped what it did before. A kind that
// is not read has none.
func TestHidden(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	f.hidden[web] = true
	f.debts = []debt{{from: 2, to: 2, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}}
	moved := version(1, "a")
	moved.Labels = map[string]string{"istio.io/rev": "next"}
	f.commit(tr, true, change(moved))
	expect(t, "being hidden", tr.Own(Question{Key: web, Generation: 1}), Behind, "")
	f.debts[0].settled = true
	expect(t, "hidden", tr.Own(Question{Key: web, Generation: 1}), WithoutEffect, "another revision")
	f.unread = "it is ignored"
	ignored := kinds.Key{Kind: kinds.Sidecar, Namespace: "a", Name: "s"}
	expect(t, "ignored", tr.Own(Question{Key: ignored, Generation: 3}), WithoutEffect, "ignored")
}

// TestUnneeded: a Secret that no proxy of a replica needs is not read there, and has no effect there. The replicas that
// need it decide, and proxies that have left lately are awaited.
func TestUnneeded(t *testing.T) {
	k := kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "tls"}
	secret := &kinds.Object{Key: k, Spec: &corev1.Secret{Data: map[string][]byte{"tls.key": []byte("x")}}}
	newest, newer := Question{Key: k, Version: archive.Content(secret)}, Question{Key: k, Version: "newer"}
	f, tr := newFakes(2)
	f[0].unneeded = "no proxy needs it"
	for _, q := range []Question{{Key: k}, newest, newer} {
		expect(t, "one replica", tr[0].Own(q), WithoutEffect, "no proxy needs it")
	}
	expect(t, "needed and not read elsewhere", tr[0].Ask(t.Context(), newest), Behind, "")
	expect(t, "needed and not read elsewhere", tr[0].Ask(t.Context(), Question{Key: k}), Behind, "")
	f[1].commit(tr[1], true, change(secret))
	f[1].debts = []debt{{from: f[1].revision, to: f[1].revision, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}}
	expect(t, "behind elsewhere", tr[0].Ask(t.Context(), Question{Key: k}), Behind, "")
	f[1].debts[0].settled = true
	for _, q := range []Question{{Key: k}, newest} {
		a := tr[0].Ask(t.Context(), q)
		if expect(t, "in force elsewhere", a, InForce, ""); a.Why != "" {
			t.Errorf("%+v", a)
		}
	}
	expect(t, "not read elsewhere", tr[0].Ask(t.Context(), newer), Behind, "")
	f[0].debts = []debt{{from: 0, to: 0, Owing: xds.Owing{Proxy: "away.a", State: xds.Departed}}}
	a := tr[0].Ask(t.Context(), newest)
	if expect(t, "a proxy has left", a, Behind, ""); len(a.Owing) != 1 || a.Proxies.Concerned != 2 {
		t.Errorf("%+v", a)
	}
	f[1].proxies = []string{"away.a"}
	expect(t, "it is connected elsewhere", tr[0].Ask(t.Context(), newest), InForce, "")
	f[0].debts, f[1].unneeded, f[1].objects[k] = nil, "no proxy needs it", nil
	expect(t, "needed nowhere", tr[0].Ask(t.Context(), newer), WithoutEffect, "no proxy needs it")
	expect(t, "the deletion", tr[0].Ask(t.Context(), Question{Key: k, Deleted: true}), Behind, "") // the other has not read it
}

// TestSelections: an object that takes effect without a change of its own waits for the commit that selected it.
func TestSelections(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	f.commit(tr, true, change(version(2, "b")))
	f.debts = []debt{{from: 2, to: 2, settled: true}}
	f.selections++
	f.commit(tr, true, change(&kinds.Object{Key: kinds.Key{Kind: kinds.Namespace, Name: "a"}, Spec: &corev1.Namespace{}}))
	f.debts = append(f.debts, debt{from: 3, to: 3, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}})
	expect(t, "selected", tr.Own(Question{Key: web, Generation: 2}), Behind, "")
	f.debts[1].settled = true
	expect(t, "selected", tr.Own(Question{Key: web, Generation: 2}), InForce, "")
}

// TestContents: objects without generations are known by what they say, and a Secret's hash is not shown.
func TestContents(t *testing.T) {
	inFile := func(host string) *kinds.Object {
		o := version(0, host)
		o.UID, o.Position = "", "web.yaml:1:1"
		return o
	}
	f, tr := newFake(inFile("a"))
	a, b, c := archive.Content(inFile("a")), archive.Content(inFile("b")), archive.Content(inFile("c"))
	ask := func(version string) Answer { return tr.Own(Question{Key: web, Version: version}) }
	if x := ask(a); x.State != InForce || x.Version != a {
		t.Errorf("%+v", x)
	}
	expect(t, "not read", ask(b), NotSeen, "")
	f.commit(tr, true, change(inFile("b")))
	f.debts = []debt{{from: 2, to: 2, settled: true}}
	expect(t, "changed", ask(b), InForce, "")
	expect(t, "replaced", ask(a), Superseded, "")
	tr.look()
	expect(t, "replaced, and encoded", ask(a), Superseded, "")
	expect(t, "not read", ask(c), NotSeen, "")
	f.unusable[web] = 0
	expect(t, "not usable", ask(""), Invalid, "")
	expect(t, "the one that stays", ask(b), InForce, "")

	k := kinds.Key{Kind: kinds.Secret, Namespace: "a", Name: "tls"}
	secret := &kinds.Object{Key: k, Spec: &corev1.Secret{Data: map[string][]byte{"tls.key": []byte("S3CRET")}}}
	f.commit(tr, true, change(secret))
	f.debts = []debt{{from: 3, to: 3, settled: true}}
	hash := archive.Content(secret)
	for _, q := range []Question{{Key: k}, {Key: k, Version: hash}} {
		x := tr.Own(q)
		if expect(t, "a Secret", x, InForce, ""); x.Version != "" || x.exactly().Version != hash {
			t.Errorf("%+v", x)
		}
	}
	expect(t, "another Secret", tr.Own(Question{Key: k, Version: b}), NotSeen, "")
	f.unusable[k] = 0 // it was read, and the last good one stays
	expect(t, "a Secret with an error", tr.Own(Question{Key: k, Version: hash}), Invalid, "as it is written")
	expect(t, "a Secret with an error", tr.Own(Question{Key: k}), Invalid, "as it is written")
	expect(t, "its correction", tr.Own(Question{Key: k, Version: b}), NotSeen, "")
	delete(f.unusable, k)
	text, err := json.Marshal([]any{tr.Own(Question{Key: k}), tr.OwnHistory(k)})
	if err != nil || strings.Contains(string(text), hash) || strings.Contains(string(text), "S3CRET") {
		t.Errorf("%s %v", text, err)
	}
}

// TestDerived: a derived object is as far as the object that it was made of.
func TestDerived(t *testing.T) {
	f, tr := newFake()
	f.commit(tr, true, change(version(3, "a")))
	derived := kinds.Key{Kind: kinds.VirtualService, Namespace: "a", Name: "web-0-istio"}
	f.origins[derived] = f.objects[web]
	f.debts = []debt{{from: 2, to: 2, settled: true}}
	if a := tr.Own(Question{Key: derived}); a.State != InForce || a.Object.Name != "web" || a.Generation != 3 {
		t.Errorf("%+v", a)
	}
}

// TestHistory: versions have their authors, the number of proxies, the time that it took, and the way back.
func TestHistory(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	tr.o.Archive.Wrote(config.Write{Key: web, Generation: 2, Manager: "helm", Time: time.Unix(999, 0)})
	f.debts = []debt{{from: 2, to: 2, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}, {from: 2, to: 2, settled: true}}
	f.commit(tr, true, change(version(2, "b")))
	if !tr.look() {
		t.Error("it does not wait for the proxy")
	}
	f.now = f.now.Add(3 * time.Second)
	f.debts[0].settled = true
	if tr.look() {
		t.Error("it waits, and all proxies have it")
	}
	f.debts = nil // the streams have forgotten
	f.commit(tr, true, kinds.Change{Key: web})
	tr.look()
	h := tr.OwnHistory(web)
	if len(h.Versions) != 3 {
		t.Fatalf("%+v", h)
	}
	gone, changed, first := h.Versions[0], h.Versions[1], h.Versions[2]
	if !gone.Deleted || gone.Proxies != 0 || !strings.Contains(gone.Restore, "\n  - b\n") {
		t.Errorf("the deletion: %+v", gone)
	}
	if changed.Generation != 2 || changed.Manager != "helm" || changed.Proxies != 2 || changed.Took == nil || *changed.Took != 3 ||
		changed.Time.Unix() != 1000 || !strings.Contains(changed.Restore, "\n  - a\n") {
		t.Errorf("the change: %+v", changed)
	}
	if first.Generation != 1 || first.Time != nil || first.Restore != "" {
		t.Errorf("the first load: %+v", first)
	}
	if a := tr.Own(Question{Key: web, Generation: 2}); a.State != Superseded {
		t.Errorf("%+v", a)
	}
	for range 3 * maxOpen {
		f.debts = []debt{{from: 1, to: 9999, Owing: xds.Owing{Proxy: "p.a", State: xds.Behind}}}
		f.commit(tr, true, change(version(int64(f.revision), "c")))
	}
	f.asked = 0
	if tr.look(); len(tr.open) != maxOpen || f.asked != perLook {
		t.Errorf("%d revisions are open, and %d are looked at", len(tr.open), f.asked)
	}
}

// TestHistoryOfWhatNoneHad: the history of a version does not include proxies that left without it. A version that no
// proxy had has no duration.
func TestHistoryOfWhatNoneHad(t *testing.T) {
	f, tr := newFake(version(1, "a"))
	f.debts = []debt{{from: 2, to: 2, Owing: xds.Owing{Proxy: "p.a", State: xds.Rejected}}}
	f.commit(tr, true, change(version(2, "b")))
	tr.look()
	if v := tr.AskHistory(t.Context(), web).Versions[0]; v.Proxies != 1 || v.Took != nil {
		t.Errorf("a proxy rejects it: %+v", v)
	}
	f.debts, f.now = nil, f.now.Add(4*time.Second)
	if tr.look() {
		t.Error("it waits for a proxy that is gone")
	}
	if v := tr.AskHistory(t.Context(), web).Versions[0]; v.Proxies != 0 || v.Took != nil || !v.Counted {
		t.Errorf("the proxy is gone: %+v", v)
	}
}

// TestFind: names of objects, and kinds of several groups.
func TestFind(t *testing.T) {
	gateway := &kinds.Object{Key: kinds.Key{Kind: kinds.KubeGateway, Namespace: "a", Name: "gw.x"}}
	istio := &kinds.Object{Key: kinds.Key{Kind: kinds.Gateway, Namespace: "b", Name: "gw"}}
	both := &kinds.Object{Key: kinds.Key{Kind: kinds.KubeGateway, Namespace: "b", Name: "gw"}}
	_, tr := newFake(version(1, "a"), gateway, istio, both)
	for text, want := range map[string]kinds.Key{
		"VirtualService/web.a":                            web,
		"Gateway/gw.x.a":                                  gateway.Key,
		"gateways.gateway.networking.k8s.io/gw.b":         both.Key,
		"Gateway.networking.istio.io/gw.b":                istio.Key,
		"Namespace/a":                                     {Kind: kinds.Namespace, Name: "a"},
		"Gateway/none.a":                                  {Kind: kinds.Gateway, Namespace: "a", Name: "none"},
		"service/" + "x" + ".ns":                          {Kind: kinds.Service, Namespace: "ns", Name: "x"},
		Name(gateway.Key):                                 gateway.Key,
		Name(kinds.Key{Kind: kinds.Namespace, Name: "b"}): {Kind: kinds.Namespace, Name: "b"},
	} {
		if k, err := tr.Find(text, ""); err != nil || k != want {
			t.Errorf("%s: %v, %v", text, k, err)
		}
	}
	for _, text := range []string{"VirtualService/web", "Gateway/gw.b"} {
		if k, err := tr.Find(text, ""); err == nil {
			t.Errorf("%q is %v", text, k)
		}
	}
}
