package xds

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/cohort"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// Streams whose group a push has nothing for sleep, and have the newest when they ask for more.
func TestGroupSleepsThroughPushesWithNothingForIt(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "eds a=1", "eds b=1", "rds x=1")
	left, right := r.delta("left.a"), r.delta("right.a")
	for c, name := range map[*deltaClient]string{left: "a", right: "b"} {
		c.expect("cds a=1")
		c.subscribe("eds", name)
		c.expect("eds " + name + "=1")
	}
	r.fake.Still.Store(true)
	at := func(proxy string) (revision uint64) {
		all := r.server.streams()
		i := slices.IndexFunc(all, func(c *conn) bool { return c.proxy.ID == proxy })
		if i < 0 || !all[i].call(t.Context(), func(s *session.Session) { revision = s.Revision() }) {
			t.Fatalf("the stream of %s is gone", proxy)
		}
		return revision
	}
	r.grouped("a", "b")
	// A new group checks one push before it knows what its streams have, and each seventh of the fake's Sets is
	// another.
	for _, full := range []bool{true, false} {
		for _, nobody := range []string{"eds nobody=1", "eds nobody=2"} {
			r.publish(full, nobody)
			r.checked()
		}
		r.publish(full, "eds a=2")
		left.expect("eds a=2")
		r.checked() // two pushes in one notify it
		r.publish(full, "eds a=1")
		left.expect("eds a=1")
		r.checked()
		if is, newest := at("right.a"), r.server.newest().Revision; is > newest-2 {
			t.Errorf("full %t: the stream that nothing concerns is at revision %d of %d", full, is, newest)
		}
		r.publish(full, "eds b=2")
		right.expect("eds b=2")
		r.publish(full, "eds b=1")
		right.expect("eds b=1")
	}
	r.publish(true, "rds x=2")
	right.subscribe("rds", "x")
	right.expect("rds x=2")
	r.publish(true, "rds x=3", "cds a=2")
	left.expect("cds a=2")
	right.expect("cds a=2")
	right.expect("rds x=3")
}

// checked waits until all groups have checked what was published.
func (r *rig) checked() {
	r.t.Helper()
	eventually(r.t, "all groups have looked", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		for _, a := range r.server.groups {
			a.mu.Lock()
			busy := a.checking
			a.mu.Unlock()
			if busy {
				return false
			}
		}
		return true
	})
}

// grouped waits until each of the names is the list of endpoints of a group.
func (r *rig) grouped(names ...string) {
	r.t.Helper()
	eventually(r.t, "they have a group", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return !slices.ContainsFunc(names, func(name string) bool {
			for key := range r.server.groups {
				if slices.ContainsFunc(
					key.Subscriptions[:], func(x session.Subscription) bool { return x.TypeURL == envoy.EndpointType && x.Names.Has(name) },
				) {
					return false
				}
			}
			return true
		})
	})
}

// TestUnknownTypeStaysInItsGroup: streams that subscribe to a type that nobody knows, beside all that Envoys subscribe
// to, are in a group by its names: a push with nothing for them wakes none, and a change of theirs reaches them.
func TestUnknownTypeStaysInItsGroup(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "eds a=1", "lds l=1", "rds r=1", "made.Up x=1", "made.Up y=1")
	streams := map[string]*deltaClient{}
	for pod, name := range map[string]string{"one.a": "x", "two.a": "x", "other.a": "y"} {
		c := r.delta(pod)
		streams[pod] = c
		c.expect("cds a=1")
		c.subscribe("eds", "a")
		c.expect("eds a=1")
		c.subscribe("lds")
		c.expect("lds l=1")
		c.subscribe("rds", "r")
		c.expect("rds r=1")
		c.subscribe("made.Up", name)
		m := c.expect("unknown " + name + "=1")
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
	}
	r.fake.Still.Store(true)
	groups := func() map[string]*subscriberGroup {
		of := map[string]*subscriberGroup{}
		all := r.server.streams()
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		for _, c := range all {
			if c.group != nil && c.group.key.Subscriptions[4].TypeURL == xdstest.LongType("made.Up") {
				of[c.proxy.ID] = c.group
			}
		}
		return of
	}
	eventually(t, "all have a group", func() bool { return len(groups()) == 3 })
	of := groups()
	if of["one.a"] != of["two.a"] || of["one.a"] == of["other.a"] {
		t.Fatalf("groups %v", of)
	}
	for _, nobody := range []string{"eds nobody=1", "eds nobody=2"} { // a new group knows nothing yet
		r.publish(true, nobody)
		r.checked()
	}
	before := r.fake.Count("subscribed unknown")
	r.publish(true, "made.Up nobody=1")
	r.checked()
	if n := r.fake.Count("subscribed unknown") - before; n != 2 {
		t.Errorf("%d translations for two groups with nothing new", n)
	}
	before = r.fake.Count("subscribed unknown")
	r.publish(true) // proxies may belong to other cohorts, and that is all
	r.checked()
	if n := r.fake.Count("subscribed unknown") - before; n != 0 {
		t.Errorf("%d translations where no resource changed", n)
	}
	r.publish(true, "made.Up x=2")
	streams["one.a"].expect("unknown x=2")
	streams["two.a"].expect("unknown x=2")
	r.publish(true, "made.Up y=2")
	streams["other.a"].expect("unknown y=2")
}

// gated is a fakeTranslator some of whose calls wait.
type gated struct {
	*xdstest.Translator
	endpoints, clusters chan struct{} // at revision 2 and 3
	checking            chan string
}

func (g *gated) Get(s *snapshot.Snapshot, c cohort.Key, typeURL string, names *envoy.Names) (envoy.Union, error) {
	switch {
	case s.Revision == 2 && names != nil:
		select {
		case g.checking <- "endpoints":
		default:
		}
		<-g.endpoints
	case s.Revision == 3 && names == nil:
		select {
		case g.checking <- "clusters":
			<-g.clusters
		default:
		}
	}
	return g.Translator.Get(s, c, typeURL, names)
}

// TestNotifiedLateThenChangesGroup: a stream that is notified late, of endpoints alone, when there is a newer snapshot
// already, and then changes its group, has all of the newer one.
func TestNotifiedLateThenChangesGroup(t *testing.T) {
	g := &gated{endpoints: make(chan struct{}), clusters: make(chan struct{}), checking: make(chan string, 1)}
	r := newRig(t, func(o *Options) {
		g.Translator = o.Translator.(*xdstest.Translator)
		o.Translator = g
		o.Translations = 4
	})
	answerClusters := sync.OnceFunc(func() { close(g.clusters) })
	defer answerClusters() // who waits there may be the group, which the stream does not need
	answerEndpoints := sync.OnceFunc(func() { close(g.endpoints) })
	defer answerEndpoints()
	g.Still.Store(true)
	r.publish(true, "cds a=1", "eds a=1", "eds b=1")
	c := r.delta("web.a")
	c.expect("cds a=1")
	c.subscribe("eds", "a")
	c.expect("eds a=1")
	r.grouped("a")
	r.publish(false, "eds a=2")
	<-g.checking               // the group is checking
	r.publish(true, "cds a=2") // the newest
	got := make(chan string, 10)
	go func() {
		for {
			m, err := c.stream.Recv()
			if err != nil {
				return
			}
			for _, x := range m.Resources {
				version, _, _ := strings.Cut(x.Version, ".")
				got <- envoy.ShortType(m.TypeUrl) + " " + x.Name + "=" + version
			}
		}
	}()
	answerEndpoints() // the group notifies of endpoints
	<-g.checking      // somebody is at the newest
	c.subscribe("eds", "b")
	has := map[string]bool{}
	held := time.After(time.Second) // a stream that waits for clusters would be sent nothing until then
	for late := time.After(time.Minute); len(has) < 3; {
		select {
		case x := <-got:
			has[x] = true
		case <-held:
			answerClusters()
		case <-late:
			t.Fatalf("of clusters a=2 and endpoints a=2 and b=1 it has %v", slices.Sorted(maps.Keys(has)))
		}
	}
}

// TestMergedPushesWakeTheGroup: a group that changed and changed back within one merged push wakes its streams, for one
// of them may have been sent what came between.
func TestMergedPushesWakeTheGroup(t *testing.T) {
	r := newRig(t)
	r.fake.Still.Store(true)
	r.publish(true, "cds a=1")
	r.delta("web.a").expect("cds a=1")
	eventually(t, "the stream has a group", func() bool {
		c := r.server.streams()
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(c) == 1 && c[0].group != nil
	})
	g := r.server.streams()[0].group
	push := *r.server.newestPush()
	push.First = push.Snapshot.Revision
	g.compare(&push) // the first push is news to a group
	clusters := session.Types(0).With(envoy.TypeOf(envoy.ClusterType))
	if same, news := g.compare(&push); news || same != clusters {
		t.Errorf("a push with nothing new wakes the group: %v, and leaves the same types %b, want %b", news, same, clusters)
	}
	push.First--
	if same, news := g.compare(&push); !news || same != 0 {
		t.Errorf("the group wakes for a merged push: %v, which leaves the same types %b", news, same)
	}
}

// TestLeavesItsGroupBeforeThatHasChecked: a stream that leaves its group before that has checked the newest snapshot
// checks it by itself; how long a push waited is not how old the stream is.
func TestLeavesItsGroupBeforeThatHasChecked(t *testing.T) {
	r := newRig(t)
	r.fake.Still.Store(true)
	r.publish(true, "cds a=1", "eds a=1")
	c := r.delta("web.a")
	c.expect("cds a=1")
	var of *conn
	eventually(t, "it has a group", func() bool {
		of = r.server.streams()[0]
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return of.group != nil
	})
	for range cap(r.server.slots) { // nobody looks
		r.server.slots <- struct{}{}
	}
	r.publish(true, "cds a=2")
	if !of.call(t.Context(), func(s *session.Session) {
		of.began = of.began.Add(-time.Hour)
		_, err := s.Take(&wire.Request{Delta: true, TypeURL: envoy.NameTableType, Limits: &r.server.o.Limits, Interner: r.server.interner})
		if err != nil {
			t.Error(err)
		}
		if of.joinGroup(); !of.hasWaiting() {
			t.Error("the stream does not compare what it has with the newest snapshot")
		}
	}) {
		t.Fatal("the stream is gone")
	}
	for range cap(r.server.slots) {
		<-r.server.slots
	}
	c.expect("cds a=2")
	if sum := histogramSum(t, r.reg, "pilot_proxy_queue_time"); sum > 60 {
		t.Errorf("pushes waited for %v s", sum)
	}
}

func histogramSum(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	must.Succeed(t, err)
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleSum()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
