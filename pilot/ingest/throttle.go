package ingest

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// ThrottleOptions are those of a Throttle. Zero durations stand for the defaults.
type ThrottleOptions struct {
	// Commit takes a batch, whose first change came in at received. Called from one goroutine; changes that come
	// meanwhile wait for it to return.
	Commit func(batch []kinds.Change, received time.Time)

	Logger  *slog.Logger
	Metrics prometheus.Registerer
	After   time.Duration // between two pushes for one namespace: PILOT_DEBOUNCE_AFTER, 100 ms
	Max     time.Duration // the longest that a change waits: PILOT_DEBOUNCE_MAX, 10 s
	Quiet   time.Duration // how long a change waits for neighbours after the last of them, 10 ms
	Gather  time.Duration // how long it waits for neighbours altogether, 50 ms
}

// Throttle gathers changes from all sources into commits. It limits the rate of each namespace, and does not wait for a
// pause in changes: the first change of a namespace waits for its neighbours only, so that applying a directory is one
// commit, and those that follow come at intervals. Endpoints do not wait at all.
//
// Changes that were added together are committed together. Of the changes of one object the last counts, and none
// overtakes a later one.
//
// The first load is no change: Take commits it at once. What was added before waits for it.
type Throttle struct {
	o     ThrottleOptions
	wake  chan struct{}
	stop  chan struct{}
	ended chan struct{}

	debounce prometheus.Observer
	inbound  map[string]prometheus.Counter

	mu      sync.Mutex
	gather  gather
	first   chan struct{} // closed when the first load is committed; nil before
	started bool          // run runs
	closed  bool
}

// NewThrottle returns a Throttle that commits nothing before the first call of Take.
func NewThrottle(o ThrottleOptions) *Throttle {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	t := &Throttle{
		o:     o,
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		ended: make(chan struct{}),
		gather: gather{
			after:  cmp.Or(o.After, 100*time.Millisecond),
			max:    cmp.Or(o.Max, 10*time.Second),
			quiet:  cmp.Or(o.Quiet, 10*time.Millisecond),
			gather: cmp.Or(o.Gather, 50*time.Millisecond),
		},
		inbound: map[string]prometheus.Counter{},
	}
	debounce := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "pilot_debounce_time", Help: "Seconds that the first change of a commit waited.", Buckets: seconds(),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
	inbound := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pilot_inbound_updates", Help: "Changes that came in, by type."}, []string{"type"})
	o.Metrics.MustRegister(debounce, inbound)
	t.debounce = debounce
	for _, typ := range []string{"config", "eds", "svc", "svcdelete"} {
		t.inbound[typ] = inbound.WithLabelValues(typ)
	}
	return t
}

// Take is the handler of the sources. Its first call commits the first load in the caller's goroutine, and starts the
// goroutine that Close ends. Later calls are those of Add.
func (t *Throttle) Take(changes []kinds.Change) {
	t.mu.Lock()
	started, closed := t.started, t.closed
	if !started && !closed {
		t.first = make(chan struct{})
		defer close(t.first)
	}
	t.mu.Unlock()
	if started {
		t.Add(changes)
		return
	}
	if closed {
		return
	}
	t.o.Commit(changes, time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.started = true
		safe.Go(t.o.Logger, "throttle", t.run)
	}
}

// Add takes changes that belong together. It never waits for a commit. The slice is the caller's again when it returns.
func (t *Throttle) Add(changes []kinds.Change) {
	if len(changes) == 0 {
		return
	}
	for i := range changes {
		t.inbound[inboundType(&changes[i])].Inc()
	}
	t.mu.Lock()
	t.gather.add(time.Now(), changes)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Close ends the Throttle when the commit under way has returned. Changes that wait are dropped.
func (t *Throttle) Close() {
	t.mu.Lock()
	t.closed = true
	first := t.first
	t.mu.Unlock()
	close(t.stop)
	if first == nil {
		return
	}
	<-first
	if t.started {
		<-t.ended
	}
}

func (t *Throttle) run() {
	defer close(t.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		t.mu.Lock()
		now := time.Now()
		batch, received, wake := t.gather.step(now)
		t.mu.Unlock()
		if len(batch) > 0 {
			t.debounce.Observe(now.Sub(received).Seconds())
			safe.Run(t.o.Logger, "commit", func() { t.o.Commit(batch, received) })
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(wake.Sub(time.Now()))
		}
		select {
		case <-timer.C:
		case <-t.wake:
		case <-t.stop:
			return
		}
	}
}

func inboundType(c *kinds.Change) string {
	switch {
	case immediate(c.Kind):
		return "eds"
	case c.Kind == kinds.Service && c.Object == nil:
		return "svcdelete"
	case c.Kind == kinds.Service:
		return "svc"
	}
	return "config"
}

// immediate reports the kinds that say where endpoints are.
func immediate(k *kinds.Kind) bool {
	return k == kinds.EndpointSlice || k == kinds.Pod || k == kinds.WorkloadEntry || k == kinds.Node
}

// gather is the Throttle without its clock and goroutine.
type gather struct {
	after, max, quiet, gather time.Duration

	now    group                // to be committed at once
	groups []*group             // of config, oldest first; no two share a namespace
	pushed map[string]time.Time // by namespace: when its last push began
}

// group is what will be committed together.
type group struct {
	changes    []kinds.Change
	index      map[kinds.Key]int // into changes
	namespaces map[string]struct{}
	first      time.Time
	last       time.Time
}

func (g *gather) add(now time.Time, changes []kinds.Change) {
	if !slices.ContainsFunc(changes, func(c kinds.Change) bool { return !immediate(c.Kind) }) {
		g.now.put(now, changes)
		for _, other := range g.groups {
			other.drop(changes) // what is newer goes first
		}
		return
	}
	target := &group{namespaces: map[string]struct{}{}}
	for _, c := range changes {
		target.namespaces[namespaceOf(c.Key)] = struct{}{}
	}
	// Whatever shares a namespace with the new changes goes with them, before them.
	rest := g.groups[:0]
	var merged *group
	for _, other := range g.groups {
		switch {
		case !other.shares(target):
			rest = append(rest, other)
		case merged == nil:
			merged = other
			rest = append(rest, other)
		default:
			merged.join(other)
		}
	}
	clear(g.groups[len(rest):])
	g.groups = rest
	if merged == nil {
		merged = target
		g.groups = append(g.groups, merged)
	}
	maps.Copy(merged.namespaces, target.namespaces)
	merged.put(now, changes)
}

// step returns what is to be committed now, and when to ask again if nothing is added before; the zero time stands for
// never.
func (g *gather) step(now time.Time) (batch []kinds.Change, received, wake time.Time) {
	take := func(t *group) {
		if len(t.changes) == 0 {
			return
		}
		batch = append(batch, t.changes...)
		if received.IsZero() || t.first.Before(received) {
			received = t.first
		}
	}
	take(&g.now)
	g.now = group{}
	for ns, at := range g.pushed {
		if now.Sub(at) >= g.after {
			delete(g.pushed, ns)
		}
	}
	rest := g.groups[:0]
	for _, t := range g.groups {
		if due := g.due(t); now.Before(due) {
			rest = append(rest, t)
			if wake.IsZero() || due.Before(wake) {
				wake = due
			}
			continue
		}
		take(t)
		for ns := range t.namespaces {
			lists.Put(&g.pushed, ns, now)
		}
	}
	clear(g.groups[len(rest):])
	g.groups = rest
	return batch, received, wake
}

// due is when a group is to be committed.
func (g *gather) due(t *group) time.Time {
	due := earlier(t.last.Add(g.quiet), t.first.Add(g.gather))
	for ns := range t.namespaces {
		if at, ok := g.pushed[ns]; ok && at.Add(g.after).After(due) {
			due = at.Add(g.after)
		}
	}
	return earlier(due, t.first.Add(g.max))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// put adds changes; one of an object that is there already takes its place.
func (t *group) put(now time.Time, changes []kinds.Change) {
	if len(t.changes) == 0 {
		t.first = now
	}
	t.last = now
	t.fill(changes)
}

func (t *group) fill(changes []kinds.Change) {
	if t.index == nil {
		t.index = make(map[kinds.Key]int, len(changes))
	}
	for _, c := range changes {
		if i, ok := t.index[c.Key]; ok {
			t.changes[i] = c
			continue
		}
		t.index[c.Key] = len(t.changes)
		t.changes = append(t.changes, c)
	}
}

// join takes over another group. They share no namespace and thus no object.
func (t *group) join(o *group) {
	t.first = earlier(t.first, o.first)
	if o.last.After(t.last) {
		t.last = o.last
	}
	maps.Copy(t.namespaces, o.namespaces)
	t.fill(o.changes)
}

// drop leaves out the objects that changes name.
func (t *group) drop(changes []kinds.Change) {
	dropped := false
	for _, c := range changes {
		if _, ok := t.index[c.Key]; ok {
			delete(t.index, c.Key)
			dropped = true
		}
	}
	if !dropped {
		return
	}
	t.changes = slices.DeleteFunc(t.changes, func(c kinds.Change) bool { _, ok := t.index[c.Key]; return !ok })
	for i, c := range t.changes {
		t.index[c.Key] = i
	}
}

func (t *group) shares(o *group) bool {
	for ns := range o.namespaces {
		if _, ok := t.namespaces[ns]; ok {
			return true
		}
	}
	return false
}

// namespaceOf is the namespace that a change makes push. A Namespace is its own; other objects of the cluster share
// one.
func namespaceOf(k kinds.Key) string {
	if k.Kind == kinds.Namespace {
		return k.Name
	}
	return k.Namespace
}

// seconds are buckets from a millisecond on, at the bounds that Istio's dashboards use, and finer below.
func seconds() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 3, 5, 10, 20, 30}
}
