package xds

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
	"github.com/istiod-lite/istiod-lite/pilot/xds/session"
	"github.com/istiod-lite/istiod-lite/registry"
)

// TestProgressOfDepartures: a proxy that leaves owes what it owed before, and all later revisions, until it is
// connected again and has everything.
func TestProgressOfDepartures(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	c := r.delta("web.a")
	c.acknowledge(c.expect("cds a=1"))
	r.publish(true, "cds a=2") // 2
	c.acknowledge(c.expect("cds a=2"))
	r.stays(2, "1 of 1")
	r.publish(true, "cds a=3") // 3
	c.expect("cds a=3")
	c.cancel()
	r.becomes(3, "0 of 1 web.a departed")
	r.stays(2, "0 of 0")
	r.publish(true, "cds b=1") // 4
	r.stays(4, "0 of 1 web.a departed")
	again := r.resumed("web.a", map[string]string{"a": "2"})
	m := again.expect("cds a=3 b=1")
	r.stays(3, "0 of 1 web.a behind")
	r.stays(4, "0 of 1 web.a behind")
	again.acknowledge(m)
	r.stays(3, "0 of 0")
	r.stays(4, "0 of 0")
	if p := r.server.Progress(3, false, 1); p.Counted {
		t.Error("it is known whether the revision concerned a client that had an earlier stream")
	}
	fresh := r.delta("fresh.a")
	fresh.expect("cds a=3 b=1")
	r.stays(4, "0 of 0")
}

// TestProgressOfRestarts: a proxy that rejects a version and starts again owes it until it has answered its first
// configuration, and still if it rejects the version again. A proxy that was never connected before and rejects its
// first configuration owes it too.
func TestProgressOfRestarts(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1", "lds l=1")
	c := r.envoy("web.a")
	c.acknowledge(c.expect("cds a=1"))
	c.subscribe("lds")
	c.acknowledge(c.expect("lds l=1"))
	r.publish(true, "lds l=bad") // 2
	c.reject(c.expect("lds l=bad"), "no")
	r.stays(2, "0 of 1 web.a rejected lds: no")
	c.cancel()
	r.stays(2, "0 of 1 web.a departed")
	c = r.envoy("web.a")
	m := c.expect("cds a=1")
	r.stays(2, "0 of 1 web.a behind")
	c.acknowledge(m)
	r.stays(2, "0 of 1 web.a behind")
	if got := r.server.Connected([]string{"web.a"}); len(got) > 0 {
		t.Error("a proxy that has not requested listeners yet is said to be where it owes everything")
	}
	c.subscribe("lds")
	m = c.expect("lds l=bad")
	r.stays(2, "0 of 1 web.a behind")
	c.reject(m, "still not")
	r.stays(2, "0 of 1 web.a rejected lds: still not")
	eventually(t, "it has answered its first configuration", func() bool { return len(r.server.Connected([]string{"web.a"})) == 1 })
	other := r.envoy("new.a")
	other.acknowledge(other.expect("cds a=1"))
	other.subscribe("lds")
	other.reject(other.expect("lds l=bad"), "never")
	r.stays(2, "0 of 2 web.a rejected lds: still not new.a rejected lds: never")
	if p := r.server.Progress(1, true, 0); p.InForce() {
		t.Error("what they had before is not in force either: it is not known what made the listener")
	}
	r.publish(true, "lds l=2") // 3
	for _, c := range []*deltaClient{c, other} {
		c.acknowledge(c.expect("lds l=2"))
	}
	r.stays(2, "0 of 0")
	r.stays(3, "2 of 2")
}

// TestProgressOfLateEnds: the stream of a proxy that rejects a version ends after the proxy has started again.
func TestProgressOfLateEnds(t *testing.T) {
	r := newRig(t)
	r.publish(true, "cds a=1")
	c := r.delta("web.a")
	c.acknowledge(c.expect("cds a=1"))
	r.publish(true, "cds a=bad") // 2
	c.reject(c.expect("cds a=bad"), "no")
	r.stays(2, "0 of 1 web.a rejected cds: no")
	again := r.delta("web.a")
	m := again.expect("cds a=bad")
	c.cancel()
	r.becomes(2, "0 of 1 web.a behind")
	r.stays(2, "0 of 1 web.a behind")
	again.reject(m, "no")
	r.stays(2, "0 of 1 web.a rejected cds: no")
}

// places is a World that knows some workloads by the names of proxies.
type places struct {
	Standalone
	by      map[string]*registry.Workload
	running []*registry.Workload
}

func (w places) Running(*snapshot.Snapshot) iter.Seq[*registry.Workload] {
	return slices.Values(w.running)
}

func (w places) WorkloadKnown(_ *snapshot.Snapshot, p *node.Proxy) bool { return w.by[p.ID] != nil }

func (w places) Workload(_ *snapshot.Snapshot, p *node.Proxy) *registry.Workload { return w.by[p.ID] }

// TestHeldProxies: a proxy that leaves while a snapshot has its workload is awaited for ten minutes, and is silent
// after that. It is forgotten when the workload is deleted or replaced.
func TestHeldProxies(t *testing.T) {
	pod := &registry.Workload{WorkloadKey: registry.WorkloadKey{Kind: kinds.Pod, Namespace: "a", Name: "web"}, Created: time.Unix(1, 0)}
	another := *pod
	another.Created = time.Unix(2, 0)
	for name, x := range map[string]struct {
		was, is *registry.Workload
		away    time.Duration
		back    bool
		want    fate
	}{
		"it has just left":                        {pod, pod, time.Second, false, awaited},
		"it left a while ago":                     {pod, pod, departureTime + time.Second, false, awaited},
		"it left long ago":                        {pod, pod, awayTime + time.Second, false, silent},
		"its workload is gone":                    {pod, nil, time.Second, false, forgotten},
		"another workload has its name":           {pod, &another, time.Second, false, forgotten},
		"it had none, and has just left":          {nil, pod, time.Second, false, awaited},
		"it had none":                             {nil, pod, departureTime + time.Second, false, forgotten},
		"it has started again":                    {pod, pod, departureTime, true, awaited},
		"it has not answered since it has begun":  {pod, pod, departureTime + time.Second, true, forgotten},
		"it had none, and has started again late": {nil, pod, departureTime, true, awaited},
	} {
		p := &node.Proxy{ID: "web.a"}
		w := places{by: map[string]*registry.Workload{}}
		s := &Server{o: Options{World: w}}
		if x.was != nil {
			w.by[p.ID] = x.was
		}
		now := time.Unix(10000, 0)
		d := departure{proxy: p, known: true, workload: workloadOf(w, &snapshot.Snapshot{}, p), at: now.Add(-x.away)}
		if x.back {
			d.back = d.at
		}
		if delete(w.by, p.ID); x.is != nil {
			w.by[p.ID] = x.is
		}
		if got := s.fateOf(&d, &snapshot.Snapshot{}, now); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}

	w := places{by: map[string]*registry.Workload{"web.a": pod}}
	r := newRig(t, func(o *Options) { o.World = w })
	r.publish(true, "cds a=1")
	c := r.delta("web.a")
	c.acknowledge(c.expect("cds a=1"))
	c.cancel()
	r.publish(true, "cds a=2") // 2
	r.becomes(2, "0 of 1 web.a departed")
	ago := func(d time.Duration) {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		for k, x := range r.server.departures.by {
			x.at = time.Now().Add(-d)
			r.server.departures.by[k] = x
		}
	}
	ago(awayTime / 2)
	r.stays(2, "0 of 1 web.a departed")
	ago(awayTime + time.Second)
	r.stays(2, "0 of 1 web.a silent")
	if got := r.server.Departed("", 10); len(got) != 1 || got[0] != "web.a" || len(r.server.Departed("web.a", 10)) > 0 {
		t.Errorf("departed: %v", got)
	}
	r.server.Forget([]string{"web.a"}, time.Now().Add(-time.Hour))
	r.stays(2, "0 of 1 web.a silent")
	r.server.Forget([]string{"web.a"}, time.Now())
	r.stays(2, "0 of 0")
}

// TestMissingProxies: a proxy that a Pod runs when the server starts, or when another server has ended, is missing
// until it has connected to a server or its Pod is gone.
func TestMissingProxies(t *testing.T) {
	pod := func(name string) *registry.Workload {
		k := registry.WorkloadKey{Kind: kinds.Pod, Namespace: "a", Name: name}
		return &registry.Workload{WorkloadKey: k, Created: time.Unix(1, 0)}
	}
	web, api := pod("web"), pod("api")
	w := places{by: map[string]*registry.Workload{"web.a": web, "api.a": api}, running: []*registry.Workload{web, api}}
	r := newRig(t, func(o *Options) { o.World = w })
	missing := func(want string) {
		t.Helper()
		list, n := r.server.Missing(5)
		got := fmt.Sprint(n)
		for _, o := range list {
			got += " " + o.Proxy + map[OwingState]string{Silent: " silent"}[o.State]
			if !strings.Contains(o.Message, "has not connected") {
				t.Errorf("the reason is %q", o.Message)
			}
		}
		if got != want {
			t.Errorf("missing %q, want %q", got, want)
		}
	}
	r.server.Expect() // there is no snapshot yet
	missing("0")
	r.publish(true, "cds a=1")
	missing("2 api.a web.a")
	if got := r.server.Departed("", 9); !slices.Equal(got, []string{"api.a", "web.a"}) {
		t.Errorf("departed: %v", got)
	}
	c := r.delta("web.a")
	m := c.expect("cds a=1")
	r.becomes(1, "0 of 1 web.a behind")
	missing("1 api.a")
	c.acknowledge(m)
	r.becomes(1, "0 of 0")
	r.server.Expect() // another server has ended
	missing("1 api.a")
	r.server.Forget([]string{"api.a"}, time.Now())
	missing("0")
	r.server.Expect()
	r.server.mu.Lock()
	for k, x := range r.server.missing.by {
		r.server.missing.by[k] = absence{x.workload, x.since.Add(-awayTime)}
	}
	r.server.mu.Unlock()
	missing("1 api.a silent")
	r.server.Expect()
	r.server.mu.Lock()
	r.server.missing.swept = time.Time{}
	r.server.mu.Unlock()
	missing("1 api.a silent") // still
	delete(w.by, "api.a")
	r.server.mu.Lock()
	r.server.missing.swept = time.Time{}
	r.server.mu.Unlock()
	missing("0")
	c.cancel()
	r.publish(true, "cds a=2")
	r.becomes(2, "0 of 1 web.a departed")
	r.server.Expect()
	missing("0") // web.a has become a departed proxy

	for i := range maxMissing + 1 {
		p := pod(fmt.Sprint(i))
		w.running, w.by[p.Name+".a"] = append(w.running, p), p
	}
	many := newRig(t, func(o *Options) { o.World = w })
	many.publish(true, "cds a=1")
	if list, n := many.server.Missing(1000); len(list) != maxMissing || n != maxMissing+2 {
		t.Errorf("%d of %d missing proxies are listed", len(list), n)
	}
}

// TestDeparturesAreBounded: if more proxies depart than are recorded, it is unknown what they owe for as long as one of
// them may come back.
func TestDeparturesAreBounded(t *testing.T) {
	d := &departures{}
	now := time.Unix(1000, 0)
	gone := false
	add := func(x departure) { d.add(x, func(*departure) bool { return gone }) }
	for i := range maxDepartures + 1 {
		add(departure{proxy: &node.Proxy{ID: fmt.Sprint(i)}, after: 5, owed: []session.Debt{{From: 2, To: 3}}, at: now})
	}
	for _, x := range []struct {
		revision uint64
		upto     bool
		after    time.Duration
		owing    int
		unknown  bool
	}{
		{revision: 1, unknown: true},
		{revision: 2, owing: maxDepartures, unknown: true},
		{revision: 4, unknown: true},
		{revision: 4, upto: true, owing: maxDepartures, unknown: true},
		{revision: 6, owing: maxDepartures, unknown: true},
		{revision: 6, owing: maxDepartures, after: departureTime + 1},
	} {
		list, unknown := d.list(now.Add(x.after), x.revision, x.upto)
		if len(list) != x.owing || unknown != x.unknown {
			t.Errorf("%+v: %d owe it, unknown %t", x, len(list), unknown)
		}
	}
	add(departure{proxy: &node.Proxy{ID: "held"}, workload: &workload{}, at: now.Add(time.Second)})
	if _, unknown := d.list(now.Add(awayTime), 6, false); !unknown {
		t.Error("a proxy found no room, and may come back")
	}
	gone = true
	for range 2 * maxOwed { // a proxy that starts again and again
		add(departure{proxy: &node.Proxy{ID: "later"}, at: now.Add(2 * time.Second),
			owed: []session.Debt{{From: 2, To: 3}, {From: 7, To: 8}}})
	}
	if len(d.by) != 1 {
		t.Errorf("%d departures are kept", len(d.by))
	}
	if x := d.by[departedProxy{id: "later"}]; len(x.owed) > maxOwed || x.owed[len(x.owed)-1].To < 3 {
		t.Errorf("it owes %v", x.owed)
	}
}
