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

// ThrottleOptions configure a Throttle. Zero durations mean the defaults.
type ThrottleOptions struct {
	// Commit commits a batch. received is the arrival time of its first change. One goroutine calls Commit; changes
	// that arrive meanwhile wait until it returns.
	Commit func(batch []kinds.Change, received time.Time)

	Logger  *slog.Logger
	Metrics prometheus.Registerer
	After   time.Duration // least time between two pushes for one namespace: PILOT_DEBOUNCE_AFTER, 100 ms
	Max     time.Duration // longest time that a change waits: PILOT_DEBOUNCE_MAX, 10 s
	Quiet   time.Duration // pause in changes that ends a batch, 10 ms
	Gather  time.Duration // longest time that a batch waits for such a pause, 50 ms
}

// Throttle gathers changes from all sources into commits and limits the rate of commits for each namespace. The first
// change of a namespace only waits briefly for further ones, so that applying a directory is one commit. Later commits
// for that namespace are spaced. Changes of endpoints do not wait.
//
// Changes that are added together are committed together. If an object changes several times in a batch, the last
// change is committed. Changes of one object are committed in order.
//
// Take commits the first load at once. Changes that were added before wait for it.
type Throttle struct {
	o     ThrottleOptions
	wake  chan struct{}
	stop  chan struct{}
	ended chan struct{}

	debounce prometheus.Observer
	inbound  map[string]prometheus.Counter

	mu      sync.Mutex
	queue   changeQueue
	first   chan struct{} // closed when the first load is committed; nil before Take
	started bool          // the goroutine of run has started
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
		queue: changeQueue{
			after:        cmp.Or(o.After, 100*time.Millisecond),
			max:          cmp.Or(o.Max, 10*time.Second),
			quiet:        cmp.Or(o.Quiet, 10*time.Millisecond),
			longestQuiet: cmp.Or(o.Gather, 50*time.Millisecond),
		},
		inbound: map[string]prometheus.Counter{},
	}
	debounce := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "pilot_debounce_time", Help: "Seconds that the first change of a commit waited.", Buckets: seconds(),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
	inbound := prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "pilot_inbound_updates", Help: "Changes that came in, by type."}, []string{"type"},
	)
	o.Metrics.MustRegister(debounce, inbound)
	t.debounce = debounce
	for _, typ := range []string{"config", "eds", "svc", "svcdelete"} {
		t.inbound[typ] = inbound.WithLabelValues(typ)
	}
	return t
}

// Take is the handler of the sources. Its first call commits the first load in the caller's goroutine, and starts the
// goroutine that Close ends. Later calls call Add.
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

// Add queues changes that belong together. It never waits for a commit. The caller may reuse the slice afterwards.
func (t *Throttle) Add(changes []kinds.Change) {
	if len(changes) == 0 {
		return
	}
	for i := range changes {
		t.inbound[inboundType(&changes[i])].Inc()
	}
	t.mu.Lock()
	t.queue.add(time.Now(), changes)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Close stops the Throttle after the current commit. Queued changes are dropped.
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
		batch, received, wake := t.queue.step(now)
		t.mu.Unlock()
		if len(batch) > 0 {
			t.debounce.Observe(now.Sub(received).Seconds())
			safe.Run(t.o.Logger, "commit", func() { t.o.Commit(batch, received) })
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
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

// immediate reports whether objects of a kind determine endpoints.
func immediate(k *kinds.Kind) bool {
	return k == kinds.EndpointSlice || k == kinds.Pod || k == kinds.WorkloadEntry || k == kinds.Node
}

// changeQueue is the state of a Throttle without its clock and goroutine.
type changeQueue struct {
	after, max, quiet, longestQuiet time.Duration

	now    group                // endpoint changes, to be committed at once
	groups []*group             // other changes, oldest first; no two groups share a namespace
	pushed map[string]time.Time // start of the last push, by namespace
}

// group is a set of changes that are committed together.
type group struct {
	changes    []kinds.Change
	index      map[kinds.Key]int // position in changes
	namespaces map[string]struct{}
	first      time.Time
	last       time.Time
}

func (q *changeQueue) add(now time.Time, changes []kinds.Change) {
	if !slices.ContainsFunc(changes, func(c kinds.Change) bool { return !immediate(c.Kind) }) {
		q.now.put(now, changes)
		for _, other := range q.groups {
			other.drop(changes) // endpoint changes are newer and are committed first
		}
		return
	}
	target := &group{namespaces: map[string]struct{}{}}
	for _, c := range changes {
		target.namespaces[namespaceOf(c.Key)] = struct{}{}
	}
	// Groups that share a namespace with the new changes are merged with them, in order.
	rest := q.groups[:0]
	var merged *group
	for _, other := range q.groups {
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
	clear(q.groups[len(rest):])
	q.groups = rest
	if merged == nil {
		merged = target
		q.groups = append(q.groups, merged)
	}
	maps.Copy(merged.namespaces, target.namespaces)
	merged.put(now, changes)
}

// step returns the changes to commit now, and the time of the next call unless changes are added before. A zero time
// means never.
func (q *changeQueue) step(now time.Time) (batch []kinds.Change, received, wake time.Time) {
	take := func(t *group) {
		if len(t.changes) == 0 {
			return
		}
		batch = append(batch, t.changes...)
		if received.IsZero() || t.first.Before(received) {
			received = t.first
		}
	}
	take(&q.now)
	q.now = group{}
	for ns, at := range q.pushed {
		if now.Sub(at) >= q.after {
			delete(q.pushed, ns)
		}
	}
	rest := q.groups[:0]
	for _, t := range q.groups {
		if due := q.due(t); now.Before(due) {
			rest = append(rest, t)
			if wake.IsZero() || due.Before(wake) {
				wake = due
			}
			continue
		}
		take(t)
		for ns := range t.namespaces {
			lists.Put(&q.pushed, ns, now)
		}
	}
	clear(q.groups[len(rest):])
	q.groups = rest
	return batch, received, wake
}

// due returns when a group is to be committed.
func (q *changeQueue) due(t *group) time.Time {
	due := earlier(t.last.Add(q.quiet), t.first.Add(q.longestQuiet))
	for ns := range t.namespaces {
		if at, ok := q.pushed[ns]; ok && at.Add(q.after).After(due) {
			due = at.Add(q.after)
		}
	}
	return earlier(due, t.first.Add(q.max))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// put adds changes. A change replaces an earlier one of the same object.
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

// join adds the changes of another group. The groups share no namespace and thus no object.
func (t *group) join(o *group) {
	t.first = earlier(t.first, o.first)
	if o.last.After(t.last) {
		t.last = o.last
	}
	maps.Copy(t.namespaces, o.namespaces)
	t.fill(o.changes)
}

// drop removes the objects that changes name.
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

// namespaceOf returns the namespace whose rate limit applies to a change: the name of a Namespace, and "" for other
// objects without a namespace.
func namespaceOf(k kinds.Key) string {
	if k.Kind == kinds.Namespace {
		return k.Name
	}
	return k.Namespace
}

// seconds are the histogram buckets: the bounds of Istio's dashboards, and finer ones below.
func seconds() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 3, 5, 10, 20, 30}
}
