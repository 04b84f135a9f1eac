package autoregistration

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/quota"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// Options of a Controller. Store, Instance, Object and Objects are needed.
type Options struct {
	Store    Store
	Instance string // the name of this replica: the pod's

	// The configuration in force: groups and entries. Each may be called from any goroutine.
	Object  func(kinds.Key) *kinds.Object
	Objects func() []*kinds.Object

	Grace    time.Duration // from the end of a proxy's last stream to the end of its entry; 0: 10 s
	NoHealth bool          // what proxies report of their health is not written

	Authorizer *authorize.Authorizer // who may register which workload; nil: as by the zero authorize.Options

	// Of the sweep.
	// an entry as long connected has lost its instance, for no stream lasts as long; 0: its age says nothing
	OrphanAge time.Duration
	Gone      func(ctx context.Context, instance string) bool // that instance does not run any more; nil: nobody knows
	// the entries of that instance are this one's to judge; nil: all are
	Sweeps func(ctx context.Context, instance string) bool

	// Entries bounds the entries of this instance; 0 is 20,000. One identity, or one address of proxies that prove none,
	// gets a tenth of them. The last tenth is for tenants that have at most a tenth.
	Entries int
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Controller registers the proxies of one instance. It is an xds.Connections.
type Controller struct {
	o       Options
	metrics *metrics

	mu      sync.Mutex
	done    uint64 // steps that went well
	entries map[types.NamespacedName]*held
	streams map[string]types.NamespacedName                            // by the stream's id
	each    *quota.Counter[identity.Holder]                            // of entries
	tenants *quota.Counter[identity.Tenant]                            // of entries
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName] // nil unless Run runs
}

// held is an entry that this instance has to do with: a proxy is connected, or has been until lately.
type held struct {
	client  xds.Client      // the newest stream
	holder  identity.Holder // of the stream that made the entry; zero if no bound is for it
	streams int
	since   time.Time // when the newest stream connected, or the last one ended
	claimed bool      // the entry says so of the newest stream
	waiting []chan error
	health  *Condition // the newest report
	wrote   time.Time  // the last one written

	// Of what is stored. A write names the version that it is made for, so an entry that somebody else has changed
	// meanwhile costs a conflict, and is read then.
	entry  *Entry // as it was written or read last, without its spec; nil: unknown
	tried  bool   // something was written or is known to be there: what is unknown has to be read
	failed bool   // the last step failed, not for a conflict
}

var _ xds.Connections = (*Controller)(nil)

// Bounds that nobody has a reason to tune.
const (
	workers = 40 // writes at a time, a tenth of them in one namespace
	// a stream waits as long for its entry to be written, and longer while others' are
	entryTimeout = 5 * time.Second
	healthLeast  = time.Second // between two writes of one entry's health
	// and as long for each entry that there is: health that flaps everywhere must leave room to register
	healthEach  = 50 * time.Millisecond
	requestTime = 10 * time.Second // for all requests of one step
	drainTime   = 2 * time.Second  // after Run's context has ended, for the entries of streams that ended before
	retryFirst  = 50 * time.Millisecond
	retryMost   = 30 * time.Second
)

// New makes a Controller. Streams wait until Run runs.
func New(o Options) *Controller {
	o.Grace, o.Entries = cmp.Or(o.Grace, 10*time.Second), cmp.Or(o.Entries, 20000)
	o.Authorizer = cmp.Or(o.Authorizer, authorize.New(authorize.Options{}))
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Controller{
		o: o, metrics: newMetrics(o.Metrics), entries: map[types.NamespacedName]*held{}, streams: map[string]types.NamespacedName{},
		each:    quota.NewCounter[identity.Holder](quota.Share(o.Entries)),
		tenants: quota.NewCounter[identity.Tenant](quota.Share(o.Entries)),
	}
}

// Connected implements xds.Connections: it waits until the entry of a proxy that has a group is written, for as long as
// entries are being written: of a thousand proxies that come at once the last one waits its turn. An API server that
// does not answer keeps no proxy away whose entry is known.
func (c *Controller) Connected(ctx context.Context, client xds.Client) error {
	p := client.Proxy
	if p.RegisterGroup == "" {
		return nil
	}
	group, err := c.admit(client)
	if err != nil {
		c.metrics.errors.Inc()
		return err
	}
	key := keyOf(p)
	written, err := c.join(key, client)
	if err != nil {
		c.metrics.errors.Inc()
		return err
	}
	if err = c.await(ctx, key, group.Name, written); err != nil {
		c.part(client.ID)
	}
	return err
}

// await waits for an entry to be written.
func (c *Controller) await(ctx context.Context, key types.NamespacedName, group string, written <-chan error) error {
	tick := time.NewTicker(entryTimeout)
	defer tick.Stop()
	for before := c.moved(key, 0); ; {
		select {
		case err := <-written:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-tick.C:
		}
		if o := c.o.Object(objectKey(key)); o != nil && o.Annotations[annotationGroup] == group {
			c.o.Logger.Debug("a proxy goes on with the entry that it had: it was not written in time", "ns", key.Namespace, "name", key.Name)
			return nil
		}
		now := c.moved(key, before)
		if now == before {
			return status.Errorf(codes.Unavailable, "the WorkloadEntry %s was not written in time", key)
		}
		before = now
	}
}

// moved returns the count of steps that went well, or before if those of this entry do not.
func (c *Controller) moved(key types.NamespacedName, before uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil && h.failed {
		return before
	}
	return c.done
}

// Disconnected implements xds.Connections.
func (c *Controller) Disconnected(client xds.Client) { c.part(client.ID) }

// Health implements xds.Connections. Of several reports that come before the first can be written, the newest counts.
func (c *Controller) Health(client xds.Client, healthy bool, message string) {
	if c.o.NoHealth {
		return
	}
	if healthy {
		message = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key, ok := c.streams[client.ID]
	if !ok {
		return
	}
	c.entries[key].health = &Condition{Healthy: healthy, Message: shorten(message), Probed: time.Now()}
	c.add(key)
}

// healthPace is the least time between two writes of one entry's health.
func (c *Controller) healthPace() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(healthLeast, time.Duration(len(c.entries))*healthEach)
}

// shorten returns a copy that fits into a status.
func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	for s = s[:maxMessage]; s != "" && s[len(s)-1]&0xc0 == 0x80; s = s[:len(s)-1] { // not within a character
	}
	return string([]byte(s[:max(0, len(s)-1)]))
}

// join counts a stream and returns where the outcome of writing its entry arrives.
func (c *Controller) join(key types.NamespacedName, client xds.Client) (<-chan error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.entries[key]
	if h == nil {
		if len(c.entries) >= c.o.Entries {
			return nil, status.Errorf(codes.ResourceExhausted, "this instance holds %d registered workloads and takes no more", len(c.entries))
		}
		holder, bounded := client.Peer.Holder()
		tenant := holder.Tenant()
		if held := c.tenants.Held(tenant); bounded && held >= c.tenants.Most() && len(c.entries) >= c.o.Entries-c.o.Entries/10 {
			return nil, status.Errorf(codes.ResourceExhausted,
				"%s has registered %d workloads at this instance, whose last entries are for others: run more replicas", tenant, held)
		}
		if bounded && !c.each.Take(holder) {
			return nil, status.Errorf(codes.ResourceExhausted,
				"%s has registered %d workloads at this instance, which is as many as one identity may: run more replicas", holder, c.each.Most())
		}
		c.tenants.Add(tenant, 1)
		h = &held{holder: holder}
		c.entries[key] = h
	}
	written := make(chan error, 1)
	h.client, h.since, h.claimed, h.failed, h.waiting = client, time.Now(), false, false, append(h.waiting, written)
	h.streams++
	c.streams[client.ID] = key
	if c.queue != nil {
		c.queue.Forget(key) // somebody waits: what failed before is tried again soon
	}
	c.add(key)
	return written, nil
}

func (c *Controller) part(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, ok := c.streams[id]
	if !ok {
		return
	}
	delete(c.streams, id)
	h := c.entries[key]
	if h.streams--; h.streams == 0 {
		h.since, h.health = time.Now(), nil
	}
	c.add(key)
}

// add has a worker look at an entry. Called with the lock.
func (c *Controller) add(key types.NamespacedName) {
	if c.queue != nil {
		c.queue.Add(key)
	}
}

// Run writes entries until ctx ends, and then those whose streams have ended before.
func (c *Controller) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryMost))
	c.mu.Lock()
	c.queue = queue
	for key := range c.entries {
		queue.Add(key)
	}
	c.mu.Unlock()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running sync.WaitGroup
	start := func(work func()) {
		running.Add(1)
		safe.Go(c.o.Logger, "autoregistration", func() {
			defer running.Done()
			work()
		})
	}
	turns := newTurns(workers)
	start(func() {
		defer turns.close()
		for key, end := queue.Get(); !end; key, end = queue.Get() {
			turns.put(key)
		}
	})
	for range workers {
		start(func() {
			for key, ok := turns.take(); ok; key, ok = turns.take() {
				c.next(inner, queue, key)
				turns.done(key)
			}
		})
	}
	c.watch(ctx)
	queue.ShutDown()
	timer := time.AfterFunc(drainTime, cancel)
	defer timer.Stop()
	running.Wait()
	for queue.Len() > 0 { // entries that were added while a worker was still at them, when the queue looked empty
		key, _ := queue.Get()
		c.next(inner, queue, key)
	}
	c.mu.Lock()
	c.queue = nil
	c.mu.Unlock()
	return nil
}

// watch checks, until ctx ends, that the entries of connected proxies are still there and are claimed.
func (c *Controller) watch(ctx context.Context) {
	tick := time.NewTicker(max(c.o.Grace/2, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		var connected, unclaimed []types.NamespacedName
		for key, h := range c.entries {
			if h.streams > 0 && h.claimed {
				connected = append(connected, key)
			} else if h.streams > 0 && c.group(h.client.Proxy) != nil { // which may have come, or come back
				unclaimed = append(unclaimed, key)
			}
		}
		queue := c.queue
		c.mu.Unlock()
		for _, key := range unclaimed {
			queue.Add(key)
		}
		for _, key := range connected {
			if o := c.o.Object(objectKey(key)); o == nil || o.Annotations[annotationDisconnected] != "" {
				c.remember(key, nil)
				queue.Add(key)
			}
		}
	}
}

// next does the next step of an entry from the queue.
func (c *Controller) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[types.NamespacedName], key types.NamespacedName) {
	defer queue.Done(key)
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	again, err := time.Duration(0), errors.New("internal error")
	safe.Run(c.o.Logger, "autoregistration step", func() { again, err = c.step(ctx, key) })
	c.count(key, err)
	switch {
	case err == nil:
		queue.Forget(key)
		if again > 0 {
			queue.AddAfter(key, again)
		}
	case outdated(err):
		queue.AddRateLimited(key) // it is read anew
	default:
		c.metrics.errors.Inc()
		level := slog.LevelWarn
		if queue.NumRequeues(key) > 0 {
			level = slog.LevelDebug // it was notified
		}
		c.o.Logger.Log(ctx, level, "an entry is not written yet", "ns", key.Namespace, "name", key.Name, "err", err)
		queue.AddRateLimited(key)
	}
}

// count notes how a step went. What failed may have been written all the same.
func (c *Controller) count(key types.NamespacedName, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.done++
	}
	if h := c.entries[key]; h != nil {
		h.failed = err != nil && !outdated(err)
		if err != nil {
			h.entry, h.tried = nil, true
		}
	}
}

// outdated reports whether the entry was not as it was thought to be.
func outdated(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) }

// remember keeps what is stored of an entry; nil: it has to be read.
func (c *Controller) remember(key types.NamespacedName, e *Entry) {
	if e != nil {
		e = e.clone()
		e.Spec, e.Labels = nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil {
		h.entry, h.tried = e, true
	}
}
