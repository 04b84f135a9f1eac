package multicluster

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Label and LabelValue mark the Secrets that are read.
const (
	Label      = "istio/multiCluster"
	LabelValue = "true"
)

// Options are which Secrets to read, how to reach what they name, and who handles it. Logger and Metrics may
// be nil.
type Options struct {
	Cluster   string // ID of the server's own cluster
	Namespace string // of the Secrets
	// Connect makes the source of a cluster, which writes its ID into every key. It must not wait for the network, and
	// be ready to be called again while the source that it made before for the same cluster runs. kubeconfig is not to
	// be modified.
	Connect func(cluster string, kubeconfig []byte, h config.Handler) (config.Source, error)
	Handler config.Handler
	Timeout time.Duration // after which a cluster that has not synced is waited for no longer; 0 is 30 s
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Controller runs the sources of remote clusters.
type Controller struct {
	opts     Options
	timeouts prometheus.Counter
	managed  *prometheus.GaugeVec
	synced   atomic.Bool
	running  sync.WaitGroup
	turn     sync.Mutex // held from an event to the return of the handler: one at a time, in order

	mu       sync.Mutex // guards what follows, for the getters
	ctx      context.Context
	secrets  map[kinds.Key]*kinds.Object
	told     bool // the first call of Handle has come
	started  bool // the first clusters are known and their sources run
	whole    bool // none of these is awaited any more
	bound    *time.Timer
	clusters map[string]*cluster
	refused  []diag.Diagnostic // keys of Secrets that do not count
	findings []diag.Diagnostic // as last reported
}

// New makes a Controller that runs nothing yet.
func New(opts Options) *Controller {
	opts.Timeout = cmp.Or(opts.Timeout, 30*time.Second)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	c := &Controller{
		opts: opts, secrets: map[kinds.Key]*kinds.Object{}, clusters: map[string]*cluster{},
		timeouts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "remote_cluster_sync_timeouts_total", Help: "How often a remote cluster took longer to sync than the timeout.",
		}),
		managed: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "istiod_managed_clusters", Help: "Clusters that this server reads."}, []string{"cluster_type"}),
	}
	c.managed.WithLabelValues("local").Set(1)
	c.managed.WithLabelValues("remote").Set(0)
	if opts.Metrics != nil {
		opts.Metrics.MustRegister(c.timeouts, c.managed)
	}
	return c
}

// Handle takes changes of the server's own cluster, of which only those of its Secrets count. It is a config.Handler.
func (c *Controller) Handle(changes []kinds.Change) {
	c.take(func() []kinds.Change {
		touched := !c.told
		c.told = true
		for _, ch := range changes {
			if ch.Kind != kinds.Secret || ch.Namespace != c.opts.Namespace || ch.Cluster != "" {
				continue
			}
			if ch.Object != nil && ch.Object.Labels[Label] == LabelValue {
				c.secrets[ch.Key], touched = ch.Object, true
			} else if c.secrets[ch.Key] != nil {
				delete(c.secrets, ch.Key)
				touched = true
			}
		}
		if !touched {
			return nil
		}
		return c.reconcile()
	})
}

// Run runs the sources until ctx ends, which is no error and deletes nothing. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	c.take(func() []kinds.Change {
		c.ctx = ctx
		return c.reconcile()
	})
	<-ctx.Done()
	c.mu.Lock() // an event that sees the context alive has started what it starts
	for _, cl := range c.clusters {
		cl.stop()
	}
	if c.bound != nil {
		c.bound.Stop()
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// take lets update change the state, hands on what follows and reports what is wrong now.
func (c *Controller) take(update func() []kinds.Change) {
	c.turn.Lock()
	defer c.turn.Unlock()
	changes, first := c.update(update)
	if len(changes) > 0 || first {
		c.opts.Handler(changes)
	}
	if first {
		c.synced.Store(true)
	}
}

func (c *Controller) update(update func() []kinds.Change) (changes []kinds.Change, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil && c.ctx.Err() != nil {
		return nil, false
	}
	changes = update()
	if !c.whole {
		changes = nil
		if c.started && len(c.awaited()) == 0 {
			c.whole, first = true, true
			for _, id := range slices.Sorted(maps.Keys(c.clusters)) {
				for key, o := range c.clusters[id].objects {
					changes = append(changes, kinds.Change{Key: key, Object: o})
				}
			}
			config.Sort(changes)
		}
	}
	c.report()
	return changes, first
}

// reconcile makes the clusters those that the Secrets name.
func (c *Controller) reconcile() []kinds.Change {
	if c.ctx == nil || !c.told {
		return nil
	}
	want := c.want()
	var changes []kinds.Change
	for _, id := range slices.Sorted(maps.Keys(c.clusters)) {
		if cl := c.clusters[id]; want[id].secret == nil {
			cl.stop()
			delete(c.clusters, id)
			for key := range cl.objects {
				changes = append(changes, kinds.Change{Key: key})
			}
			c.opts.Logger.Info("remote cluster removed", "cluster", id, "objects", len(cl.objects))
		}
	}
	config.Sort(changes)
	for _, id := range slices.Sorted(maps.Keys(want)) {
		cl := c.clusters[id]
		if cl == nil {
			cl = &cluster{id: id, objects: map[kinds.Key]*kinds.Object{}, awaited: !c.started}
			c.clusters[id] = cl
		}
		cl.secret = want[id].secret.Key
		c.follow(cl, want[id].kubeconfig)
	}
	if !c.started {
		c.started = true
		if len(want) > 0 {
			// A bound for all together, however often their Secrets change meanwhile.
			c.bound = c.after(func() {
				for _, cl := range c.clusters {
					cl.awaited = false
				}
			})
		}
	}
	c.managed.WithLabelValues("remote").Set(float64(len(c.clusters)))
	return changes
}

// after runs f, under the lock, when the timeout has passed.
func (c *Controller) after(f func()) *time.Timer {
	return time.AfterFunc(c.opts.Timeout, func() {
		safe.Run(c.opts.Logger, "remote cluster timeout", func() {
			c.take(func() []kinds.Change {
				f()
				return nil
			})
		})
	})
}

// naming is the Secret that names a cluster, and the kubeconfig in it.
type naming struct {
	secret     *kinds.Object
	kubeconfig []byte
}

// want returns what the Secrets name, and notes what does not count.
func (c *Controller) want() map[string]naming {
	secrets := slices.SortedFunc(maps.Values(c.secrets), func(a, b *kinds.Object) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	want := map[string]naming{}
	c.refused = nil
	for _, secret := range secrets {
		data := kubeconfigs(secret.Spec.(*corev1.Secret))
		for _, id := range slices.Sorted(maps.Keys(data)) {
			d := diag.Diagnostic{Severity: diag.Warning, Object: secret.String(), Field: "data." + id}
			switch first := want[id].secret; {
			case id == c.opts.Cluster:
				d.Code, d.Message = "OwnCluster", "cluster "+id+" is the server's own and is not read as a remote one"
				d.Fix = "remove the key, or give one of the clusters another ID"
				c.refused = append(c.refused, d)
			case first != nil:
				d.Code, d.Message = "DuplicateCluster", "cluster "+id+" is already in "+first.String()+", which comes first and is used"
				d.Fix = "remove one of the two"
				c.refused = append(c.refused, d)
			default:
				want[id] = naming{secret, data[id]}
			}
		}
	}
	return want
}

// kubeconfigs returns the data as an API server would show it.
func kubeconfigs(s *corev1.Secret) map[string][]byte {
	if len(s.StringData) == 0 {
		return s.Data
	}
	data := maps.Clone(s.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	for id, kubeconfig := range s.StringData {
		data[id] = []byte(kubeconfig)
	}
	return data
}
