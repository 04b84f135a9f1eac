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

// Label and LabelValue mark the Secrets of remote clusters.
const (
	Label      = "istio/multiCluster"
	LabelValue = "true"
)

// Options configure a Controller. Logger and Metrics are optional.
type Options struct {
	Cluster   string // ID of the server's own cluster
	Namespace string // namespace of the Secrets
	// Connect makes the source of a cluster, whose keys have the cluster's ID. It must not wait for the network, and
	// may be called again while an earlier source of the cluster runs. It must not modify kubeconfig.
	Connect func(cluster string, kubeconfig []byte, h config.Handler) (config.Source, error)
	Handler config.Handler
	Timeout time.Duration // how long a cluster that has not synced delays the first call; 0 for 30 s
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
	turn     sync.Mutex // held from an event until the handler returns, to keep the order

	mu       sync.Mutex // guards the fields below
	ctx      context.Context
	secrets  map[kinds.Key]*kinds.Object
	told     bool // Handle was called
	started  bool // the sources of the first clusters run
	whole    bool // no cluster is awaited any more
	bound    *time.Timer
	clusters map[string]*cluster
	refused  []diag.Diagnostic // findings about ignored keys of Secrets
	findings []diag.Diagnostic // last reported findings
}

// New returns a Controller that runs no source.
func New(opts Options) *Controller {
	opts.Timeout = cmp.Or(opts.Timeout, 30*time.Second)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	c := &Controller{
		opts: opts, secrets: map[kinds.Key]*kinds.Object{}, clusters: map[string]*cluster{},
		timeouts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "remote_cluster_sync_timeouts_total",
			Help: "Remote clusters that did not sync within the timeout, counted at each new kubeconfig.",
		}),
		managed: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "istiod_managed_clusters", Help: "Clusters that this server reads, by type: local or remote."},
			[]string{"cluster_type"},
		),
	}
	c.managed.WithLabelValues("local").Set(1)
	c.managed.WithLabelValues("remote").Set(0)
	if opts.Metrics != nil {
		opts.Metrics.MustRegister(c.timeouts, c.managed, syncStatuses{c})
	}
	return c
}

// Handle applies changes of Secrets of the server's own cluster and ignores others. It is a config.Handler.
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

// Run runs the sources until ctx ends, when it returns nil and deletes nothing. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	c.take(func() []kinds.Change {
		c.ctx = ctx
		return c.reconcile()
	})
	<-ctx.Done()
	c.mu.Lock() // events that saw the context alive have started their sources by now
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

// take runs update, calls the handler with its changes and reports the findings.
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

// reconcile makes the clusters match the Secrets.
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
			// One bound for all clusters, even if their Secrets change meanwhile.
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

// after runs f under the lock after the timeout.
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

// naming is the Secret that names a cluster, and its kubeconfig.
type naming struct {
	secret     *kinds.Object
	kubeconfig []byte
}

// want returns the clusters that the Secrets name, and records findings about ignored keys.
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

// kubeconfigs returns the data of a Secret, including stringData.
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
