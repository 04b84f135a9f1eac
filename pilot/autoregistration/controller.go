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

// Options configure a Controller. Store, World and Instance are required.
type Options struct {
	Store Store
	World World
	// Instance is the name of this replica, usually its pod's.
	Instance string

	// Grace is the time from the end of a proxy's last stream to the deletion of its entry. The default is 10 s.
	Grace time.Duration
	// NoHealth makes the controller ignore the health that proxies report.
	NoHealth bool

	// Authorizer decides who may register which workload. The default is an Authorizer with zero authorize.Options.
	Authorizer *authorize.Authorizer

	// OrphanAge is the age at which a connection recorded in an entry must have ended, because no stream lasts as long.
	// The sweep then deletes the entry. Zero disables that.
	OrphanAge time.Duration
	// Replicas is optional. Without it the sweep assumes that every other instance runs, and that this instance may sweep
	// the entries of all instances.
	Replicas Replicas

	// Entries limits the entries of this instance. The default is 20,000. One identity, or one address of proxies
	// without an identity, may have a tenth of them. The last tenth is reserved for tenants that have at most a tenth.
	Entries int
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// World reads the WorkloadGroups and WorkloadEntries in force. It is safe for concurrent use.
type World interface {
	// Object returns the object of a key, or nil.
	Object(kinds.Key) *kinds.Object
	// ObjectsOf returns all objects of a kind, in no order.
	ObjectsOf(*kinds.Kind) []*kinds.Object
}

// Replicas knows the instances that register proxies.
type Replicas interface {
	// Gone reports whether an instance no longer runs.
	Gone(ctx context.Context, instance string) bool
	// Sweeps reports whether this instance may sweep the entries of an instance.
	Sweeps(ctx context.Context, instance string) bool
}

// Controller registers the proxies of one instance. It implements xds.Connections.
type Controller struct {
	o       Options
	metrics *metrics

	mu        sync.Mutex
	steps     uint64 // number of successful steps
	entries   map[types.NamespacedName]*registration
	streams   map[string]types.NamespacedName // by stream ID
	perHolder *quota.Counter[identity.Holder] // number of entries
	perTenant *quota.Counter[identity.Tenant] // number of entries
	queue     entryQueue                      // nil unless Run is running
}

// entryQueue is a queue of entries with a step to do.
type entryQueue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// registration is the state of an entry whose proxy is connected to this instance, or was recently.
type registration struct {
	client        xds.Client      // newest stream
	holder        identity.Holder // holder of the stream that created the entry; zero if no limit applies
	streams       int
	since         time.Time // when the newest stream connected, or the last one ended
	claimed       bool      // the stored entry names the newest stream
	waiting       []chan error
	health        *Condition // newest report
	healthWritten time.Time  // time of the last write of health

	// cached is the stored entry as it was last written or read, without spec and labels, or nil if unknown. A write
	// names the version that it changes. If another writer has changed the entry since, the write fails with a
	// conflict, and the entry is read.
	cached *Entry
	// mustRead reports that an unknown entry must be read, because something was written or is known to exist.
	mustRead bool
	failed   bool // the last step failed, and not because of a conflict
}

var _ xds.Connections = (*Controller)(nil)

// Limits and times that are not configurable.
const (
	workers = 40 // concurrent writes, a tenth of them in one namespace
	// entryTimeout is how long a stream waits for its entry to be written. It waits longer while other entries are
	// written.
	entryTimeout      = 5 * time.Second
	minHealthInterval = time.Second // between two writes of the health of one entry
	// The interval grows with the number of entries, so that health that changes everywhere leaves room to register.
	healthIntervalPerEntry = 50 * time.Millisecond
	requestTimeout         = 10 * time.Second // for all requests of one step
	drainTimeout           = 2 * time.Second  // after Run's context has ended, for streams that ended before
	minBackoff             = 50 * time.Millisecond
	maxBackoff             = 30 * time.Second
)

// New returns a Controller. Streams of registering proxies wait until Run is called.
func New(o Options) *Controller {
	o.Grace, o.Entries = cmp.Or(o.Grace, 10*time.Second), cmp.Or(o.Entries, 20000)
	o.Authorizer = cmp.Or(o.Authorizer, authorize.New(authorize.Options{}))
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Controller{
		o: o, metrics: newMetrics(o.Metrics), entries: map[types.NamespacedName]*registration{}, streams: map[string]types.NamespacedName{},
		perHolder: quota.NewCounter[identity.Holder](quota.Share(o.Entries)),
		perTenant: quota.NewCounter[identity.Tenant](quota.Share(o.Entries)),
	}
}

// Connected implements xds.Connections. It waits until the entry of a proxy that names a group is written. It waits
// as long as other entries are being written, so that the last of a thousand proxies that connect at once has its
// turn. A proxy whose entry is known is admitted even if the API server does not answer.
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
		c.leave(client.ID)
	}
	return err
}

// await waits for an entry to be written. The error has a gRPC status.
func (c *Controller) await(ctx context.Context, key types.NamespacedName, group string, written <-chan error) error {
	tick := time.NewTicker(entryTimeout)
	defer tick.Stop()
	for last := c.progress(key, 0); ; {
		select {
		case err := <-written:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-tick.C:
		}
		if o := c.o.World.Object(objectKey(key)); o != nil && o.Annotations[annotationGroup] == group {
			c.o.Logger.Debug("admitted a proxy with its existing entry, which was not written in time", "ns", key.Namespace, "name", key.Name)
			return nil
		}
		now := c.progress(key, last)
		if now == last {
			return status.Errorf(codes.Unavailable, "the WorkloadEntry %s was not written in time", key)
		}
		last = now
	}
}

// progress returns the number of successful steps, or last if steps of this entry fail.
func (c *Controller) progress(key types.NamespacedName, last uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil && h.failed {
		return last
	}
	return c.steps
}

// Disconnected implements xds.Connections.
func (c *Controller) Disconnected(client xds.Client) { c.leave(client.ID) }

// Health implements xds.Connections. If several reports arrive before a write, only the newest is written.
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
	c.enqueue(key)
}

// healthInterval is the minimum time between two writes of the health of one entry.
func (c *Controller) healthInterval() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(minHealthInterval, time.Duration(len(c.entries))*healthIntervalPerEntry)
}

// shorten returns a copy of a text that fits into a status.
func shorten(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	for s = s[:maxMessage]; s != "" && s[len(s)-1]&0xc0 == 0x80; s = s[:len(s)-1] { // not within a character
	}
	return string([]byte(s[:max(0, len(s)-1)]))
}

// join adds a stream and returns the channel on which the result of writing its entry arrives. The error has a gRPC
// status.
func (c *Controller) join(key types.NamespacedName, client xds.Client) (<-chan error, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.entries[key]
	if h == nil {
		if len(c.entries) >= c.o.Entries {
			return nil, status.Errorf(codes.ResourceExhausted,
				"this instance holds %d registered workloads, which is its limit: run more replicas", len(c.entries))
		}
		holder, bounded := client.Peer.Holder()
		tenant := holder.Tenant()
		if held := c.perTenant.Held(tenant); bounded && held >= c.perTenant.Most() && len(c.entries) >= c.o.Entries-c.o.Entries/10 {
			return nil, status.Errorf(codes.ResourceExhausted,
				"%s has registered %d workloads at this instance, and the last tenth of its entries is reserved for others: run more replicas",
				tenant, held)
		}
		if bounded && !c.perHolder.Take(holder) {
			return nil, status.Errorf(codes.ResourceExhausted,
				"%s has registered %d workloads at this instance, which is the limit for one identity: run more replicas", holder, c.perHolder.Most())
		}
		c.perTenant.Add(tenant, 1)
		h = &registration{holder: holder}
		c.entries[key] = h
	}
	written := make(chan error, 1)
	h.client, h.since, h.claimed, h.failed, h.waiting = client, time.Now(), false, false, append(h.waiting, written)
	h.streams++
	c.streams[client.ID] = key
	if c.queue != nil {
		c.queue.Forget(key) // a stream waits, so the backoff is reset
	}
	c.enqueue(key)
	return written, nil
}

func (c *Controller) leave(id string) {
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
	c.enqueue(key)
}

// enqueue lets a worker process an entry. The caller holds the lock.
func (c *Controller) enqueue(key types.NamespacedName) {
	if c.queue != nil {
		c.queue.Add(key)
	}
}

// Run writes entries until ctx ends, and then the entries of streams that ended before. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minBackoff, maxBackoff)
	queue := workqueue.NewTypedRateLimitingQueue(limiter)
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
				c.process(inner, queue, key)
				turns.done(key)
			}
		})
	}
	c.watch(ctx)
	queue.ShutDown()
	timer := time.AfterFunc(drainTimeout, cancel)
	defer timer.Stop()
	running.Wait()
	for queue.Len() > 0 { // entries that were added while a worker was processing them, when the queue looked empty
		key, _ := queue.Get()
		c.process(inner, queue, key)
	}
	c.mu.Lock()
	c.queue = nil
	c.mu.Unlock()
	return nil
}

// watch checks periodically, until ctx ends, that the entries of connected proxies exist and are claimed.
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
		var claimed, unclaimed []types.NamespacedName
		for key, h := range c.entries {
			if h.streams > 0 && h.claimed {
				claimed = append(claimed, key)
			} else if h.streams > 0 && c.group(h.client.Proxy) != nil { // its group may have been created since
				unclaimed = append(unclaimed, key)
			}
		}
		queue := c.queue
		c.mu.Unlock()
		for _, key := range unclaimed {
			queue.Add(key)
		}
		for _, key := range claimed {
			if o := c.o.World.Object(objectKey(key)); o == nil || o.Annotations[annotationDisconnected] != "" {
				c.cache(key, nil)
				queue.Add(key)
			}
		}
	}
}

// process does the next step of an entry from the queue.
func (c *Controller) process(ctx context.Context, queue entryQueue, key types.NamespacedName) {
	defer queue.Done(key)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	requeueAfter, err := time.Duration(0), errors.New("the step panicked")
	safe.Run(c.o.Logger, "autoregistration step", func() { requeueAfter, err = c.step(ctx, key) })
	c.record(key, err)
	switch {
	case err == nil:
		queue.Forget(key)
		if requeueAfter > 0 {
			queue.AddAfter(key, requeueAfter)
		}
	case stale(err):
		queue.AddRateLimited(key) // the next step reads the entry
	default:
		c.metrics.errors.Inc()
		level := slog.LevelWarn
		if queue.NumRequeues(key) > 0 {
			level = slog.LevelDebug // a warning was logged before
		}
		c.o.Logger.Log(ctx, level, "failed to write a WorkloadEntry: it is retried", "ns", key.Namespace, "name", key.Name, "err", err)
		queue.AddRateLimited(key)
	}
}

// record notes the result of a step. After an error the entry is unknown, because a failed request may have written
// it.
func (c *Controller) record(key types.NamespacedName, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.steps++
	}
	if h := c.entries[key]; h != nil {
		h.failed = err != nil && !stale(err)
		if err != nil {
			h.cached, h.mustRead = nil, true
		}
	}
}

// stale reports whether a step failed because the stored entry was not the expected one.
func stale(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) }

// cache keeps a copy of a stored entry. If e is nil, the entry is read before the next write.
func (c *Controller) cache(key types.NamespacedName, e *Entry) {
	if e != nil {
		e = e.clone()
		e.Spec, e.Labels = nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.entries[key]; h != nil {
		h.cached, h.mustRead = e, true
	}
}
