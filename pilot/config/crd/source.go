package crd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/pilot/config"
)

// Options configure a Source. Client and Handler are required.
type Options struct {
	Client  *rest.Config
	Cluster string // cluster in the keys of objects: the ID of a remote cluster, or empty for the server's own
	Kinds   []*kinds.Kind
	Only    map[*kinds.Kind]Restriction // restrictions of kinds that are read partly
	// Namespaces are the namespaces in which objects are read, unless the kind has none or Only names one. Empty for all.
	Namespaces []string
	Handler    config.Handler
	Logger     *slog.Logger
	Metrics    prometheus.Registerer // may be shared by several sources
	Limits     limits.Limits         // limits; the zero value means limits.Default
	// Writes is told who wrote each version that is read after the first load. Nil if no caller wants to know.
	Writes config.Writes
}

// Restriction selects objects of a kind. Empty fields do not restrict.
type Restriction struct {
	Namespace string
	Names     []string
	Labels    string // label selector in kubectl's syntax
}

// Source reads one API server.
type Source struct {
	opts     Options
	http     *http.Client
	limiter  flowcontrol.RateLimiter
	metrics  *metrics
	signal   chan struct{} // capacity 1; wakes Run
	synced   atomic.Bool
	findings config.Findings
	running  sync.WaitGroup
	timeouts timeouts
	seed     maphash.Seed // seed of fingerprints

	mu             sync.Mutex
	feeds          []*feed                          // feeds of Options.Kinds
	wanted         map[wantedIn]map[string]struct{} // names of wanted objects
	reading        map[wantedIn]*wantedFeeds
	definitions    *definitions             // nil if no kind needs one
	pending        map[kinds.Key]transition // changes that have not been delivered
	objectFindings map[kinds.Key]judgement  // findings by object, with the version that they are about
}

// judgement has the findings about the version of an object that was read last.
type judgement struct {
	generation int64 // 0 for a core kind
	findings   []diag.Diagnostic
}

// transition is the state of an object at the last delivery and now. Nil means that it does not exist. The old state of
// core kinds is not kept.
type transition struct {
	existed  bool
	was, now *kinds.Object
}

// New returns a Source. It does not connect.
func New(opts Options) (*Source, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.Limits == (limits.Limits{}) {
		opts.Limits = limits.Default()
	}
	if opts.Client == nil {
		return nil, errors.New("no API server is configured")
	}
	client, err := newHTTP(opts.Client)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server %s: %w", opts.Client.Host, err)
	}
	s := &Source{
		opts: opts, http: client, metrics: newMetrics(opts.Metrics, opts.Cluster), signal: make(chan struct{}, 1),
		pending: map[kinds.Key]transition{}, objectFindings: map[kinds.Key]judgement{},
		timeouts: defaultTimeouts(), seed: maphash.MakeSeed(), reading: map[wantedIn]*wantedFeeds{},
	}
	if s.limiter = opts.Client.RateLimiter; s.limiter == nil {
		s.limiter = flowcontrol.NewTokenBucketRateLimiter(cmp.Or(opts.Client.QPS, DefaultQPS), cmp.Or(opts.Client.Burst, DefaultBurst))
	}
	for _, k := range opts.Kinds {
		if slices.ContainsFunc(s.feeds, func(f *feed) bool { return f.kind == k }) {
			return nil, fmt.Errorf("kind %s is listed twice", k.Name)
		}
		for _, only := range opts.restrictions(k) {
			s.feeds = append(s.feeds, newFeed(s, k, only))
		}
		if coreOf(k) == nil && s.definitions == nil {
			s.definitions = newDefinitions(s)
		}
	}
	return s, nil
}

// restrictions returns the restrictions of the feeds of a kind.
func (o Options) restrictions(k *kinds.Kind) (list []Restriction) {
	only := o.Only[k]
	if k.Cluster || only.Namespace != "" || len(o.Namespaces) == 0 {
		return split(only)
	}
	for _, namespace := range o.Namespaces {
		only.Namespace = namespace
		list = append(list, split(only)...)
	}
	return list
}

// split divides a restriction into restrictions with at most one name, because a field selector can have only one.
func split(only Restriction) []Restriction {
	if len(only.Names) < 2 {
		return []Restriction{only}
	}
	var out []Restriction
	names := slices.Clone(only.Names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		one := only
		one.Names = []string{name}
		out = append(out, one)
	}
	return out
}

// HasSynced reports whether the handler's first call, with all objects, has returned.
func (s *Source) HasSynced() bool { return s.synced.Load() }

// Current reports whether the delivered objects of a kind are up to date. While the API server does not answer, they
// may be stale.
func (s *Source) Current(k *kinds.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.allFeeds {
		if f.kind == k && (f.readError != nil || f.running && !f.synced && !f.passedOver()) {
			return false
		}
	}
	return s.synced.Load()
}

// Findings returns the current findings. The caller must not modify the result.
func (s *Source) Findings() []diag.Diagnostic { return s.findings.Get() }

// Intervals of log lines about what the first load waits for.
const (
	firstNotice = time.Second
	waitNotice  = 30 * time.Second
)

// Run reads all objects, calls the handler, and then follows changes until ctx ends, when it returns nil. It retries an
// unreachable API server forever. Run is called once.
func (s *Source) Run(ctx context.Context) error {
	// Reflectors log each attempt, which only debugging needs. Findings report the failures.
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.FromSlogHandler(s.opts.Logger.Handler()).V(4)))
	defer func() {
		cancel()
		s.running.Wait()
		s.http.CloseIdleConnections()
		s.readers(-1)
	}()
	start := time.Now()
	s.readers(1)
	s.start(ctx)
	s.wake() // a source of wanted objects alone is complete until objects are wanted
	notice := time.NewTimer(firstNotice)
	defer notice.Stop()
	for {
		late := false
		select {
		case <-ctx.Done():
			return nil
		case <-s.signal:
		case <-notice.C:
			late = true
			notice.Reset(waitNotice)
		}
		s.followWanted(ctx)
		if waiting, why := s.waiting(); s.synced.Load() || len(waiting) == 0 {
			s.deliver(start)
		} else if late {
			log := s.opts.Logger.With("kind", strings.Join(waiting, ", "), "dur", time.Since(start).Round(time.Second))
			if why != nil {
				log = log.With("err", why)
			}
			log.Info("waiting for the API server")
		}
		s.report()
	}
}

// readers adds the readers of this source to the metric.
func (s *Source) readers(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*watched
	for f := range s.allFeeds {
		all = append(all, &f.watched)
	}
	if s.definitions != nil {
		all = append(all, &s.definitions.watched)
	}
	for _, w := range all {
		stalled := 0
		if w.readError != nil {
			stalled = by
		}
		s.metrics.count(w.plural, by, stalled)
	}
}

func (s *Source) start(ctx context.Context) {
	if s.definitions != nil {
		s.spawn("definitions", func() { s.definitions.run(ctx) })
	}
	for _, f := range s.feeds {
		if f.core != nil {
			f.start(ctx)
		}
	}
}

func (s *Source) spawn(name string, fn func()) {
	s.running.Add(1)
	safe.Go(s.opts.Logger, "crd "+name, func() {
		defer s.running.Done()
		fn()
	})
}

// wake wakes Run.
func (s *Source) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Unread names the kinds that have not been read yet. HasSynced is false while there are any.
func (s *Source) Unread() []string {
	if s.synced.Load() {
		return nil
	}
	unread, _ := s.waiting()
	return unread
}

// waiting names the kinds that have not been read yet, and the reason for the first one, if it is known.
func (s *Source) waiting() (kinds []string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions; d != nil && !d.decided() {
		return []string{"CustomResourceDefinition"}, d.readError
	}
	for f := range s.allFeeds {
		if !f.settled() {
			if name := f.String(); !slices.Contains(kinds, name) { // a kind has a feed for each namespace that is read
				kinds = append(kinds, name)
			}
			why = cmp.Or(why, f.readError)
			if f.doubtful() {
				why = cmp.Or(why, errNotFound)
			}
		}
	}
	return kinds, why
}

// changed records the state of an object. The caller holds mu.
func (s *Source) changed(key kinds.Key, existed bool, was, now *kinds.Object) {
	t, again := s.pending[key]
	if !again {
		t.existed, t.was = existed, was
	}
	t.now = now
	s.pending[key] = t
}

// expect allocates room for the changes of a first load.
func (s *Source) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) < n {
		pending := make(map[kinds.Key]transition, len(s.pending)+n)
		maps.Copy(pending, s.pending)
		s.pending = pending
	}
}

// setFindings replaces the findings about an object. The caller holds mu.
func (s *Source) setFindings(key kinds.Key, j judgement) {
	if len(j.findings) == 0 {
		delete(s.objectFindings, key)
		return
	}
	s.objectFindings[key] = j
}

// Unusable returns the generation of an object whose last version is not in force as it is written, and reports whether
// there is one.
func (s *Source) Unusable(key kinds.Key) (generation int64, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.objectFindings[key]
	return j.generation, slices.ContainsFunc(j.findings, config.IsUnusable)
}

// deliver calls the handler with the changes since the last delivery.
func (s *Source) deliver(start time.Time) {
	s.mu.Lock()
	changes := make([]kinds.Change, 0, len(s.pending))
	for key, t := range s.pending {
		if t.now == nil && t.existed || t.now != nil && t.now != t.was {
			changes = append(changes, kinds.Change{Key: key, Object: t.now})
		}
	}
	s.pending = map[kinds.Key]transition{}
	s.mu.Unlock()
	first := !s.synced.Load()
	if len(changes) == 0 && !first {
		return
	}
	config.Sort(changes)
	s.opts.Handler(changes)
	if first {
		s.synced.Store(true)
		s.opts.Logger.Info("API server read", "objects", len(changes), "dur", time.Since(start))
	}
}
