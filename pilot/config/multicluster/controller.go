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
	files    []File
	told     bool // Handle or HandleFiles was called
	started  bool // the sources of the first clusters run
	whole    bool // no cluster is awaited any more
	bound    *time.Timer
	clusters map[string]*cluster
	refused  []diag.Diagnostic // findings about ignored keys of Secrets, and ignored files
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

// HandleFiles replaces the files that name clusters.
func (c *Controller) HandleFiles(files []File) {
	c.take(func() []kinds.Change {
		c.files, c.told = files, true
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

// reconcile makes the clusters match the Secrets and files.
func (c *Controller) reconcile() []kinds.Change {
	if c.ctx == nil || !c.told {
		return nil
	}
	want := c.want()
	var changes []kinds.Change
	for _, id := range slices.Sorted(maps.Keys(c.clusters)) {
		if cl := c.clusters[id]; want[id].origin == (origin{}) {
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
		cl.origin = want[id].origin
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

// origin is a Secret or a file that names clusters.
type origin struct {
	name   string // namespace/name, or a path
	secret bool
}

func (o origin) String() string {
	if o.secret {
		return "Secret " + o.name
	}
	return "the file " + o.name
}

// finding returns a finding about the kubeconfig of a cluster, without a text.
func (o origin) finding(cluster string) diag.Diagnostic {
	if o.secret {
		return diag.Diagnostic{Object: o.String(), Field: "data." + cluster}
	}
	return diag.Diagnostic{File: o.name}
}

// naming is what names a cluster, and its kubeconfig.
type naming struct {
	origin     origin
	id         string
	kubeconfig []byte
}

// namings returns what names clusters, in the order of precedence.
func (c *Controller) namings() (list []naming) {
	secrets := slices.SortedFunc(maps.Values(c.secrets), func(a, b *kinds.Object) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	for _, secret := range secrets {
		data := kubeconfigs(secret.Spec.(*corev1.Secret))
		for _, id := range slices.Sorted(maps.Keys(data)) {
			list = append(list, naming{origin{secret.Namespace + "/" + secret.Name, true}, id, data[id]})
		}
	}
	for _, f := range c.files {
		list = append(list, naming{origin{name: f.Path}, f.Cluster, f.Kubeconfig})
	}
	return list
}

// want returns the clusters to read, and records findings about what is ignored.
func (c *Controller) want() map[string]naming {
	want := map[string]naming{}
	c.refused = nil
	for _, n := range c.namings() {
		d := n.origin.finding(n.id)
		d.Severity = diag.Warning
		switch first, named := want[n.id]; {
		case n.id == c.opts.Cluster:
			d.Code, d.Message = "OwnCluster", "cluster "+n.id+" is the server's own and is not read as a remote one"
			d.Fix = "remove the key, or give one of the clusters another ID"
			if !n.origin.secret {
				d.Fix = "remove the file, or give the cluster another name in it"
			}
			c.refused = append(c.refused, d)
		case named:
			d.Code, d.Message = "DuplicateCluster", "cluster "+n.id+" is already in "+first.origin.String()+", which comes first and is used"
			d.Fix = "remove one of the two"
			c.refused = append(c.refused, d)
		default:
			want[n.id] = n
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
