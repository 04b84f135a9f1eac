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

// Options are what to read and who handles it. Client and Handler are needed.
type Options struct {
	Client  *rest.Config
	Cluster string // written into the keys of objects: the ID of a remote cluster, empty for the server's own
	Kinds   []*kinds.Kind
	Only    map[*kinds.Kind]Restriction // kinds that are read in part
	Handler config.Handler
	Logger  *slog.Logger
	Metrics prometheus.Registerer // several sources may share one
	Limits  limits.Limits         // the zero Limits are limits.Default
}

// Restriction names the objects of a kind that are read. What is empty does not restrict.
type Restriction struct {
	Namespace string
	Names     []string
	Labels    string // a label selector as in kubectl
}

// Source reads one API server.
type Source struct {
	opts     Options
	http     *http.Client
	limiter  flowcontrol.RateLimiter
	metrics  *metrics
	signal   chan struct{} // holds one token while there may be something to hand on
	synced   atomic.Bool
	findings config.Findings
	running  sync.WaitGroup
	timeouts timeouts
	seed     maphash.Seed // of fingerprints

	mu          sync.Mutex
	feeds       []*feed                          // of the kinds of Options
	wanted      map[wantedIn]map[string]struct{} // names of single objects
	reading     map[wantedIn]*wantedFeeds
	definitions *definitions                    // nil if no kind needs one
	pending     map[kinds.Key]transition        // not handed on yet
	complaints  map[kinds.Key][]diag.Diagnostic // by object
}

// transition is what an object was when last handed on, and what it is now. A nil object is absent; of core kinds, what
// was is not kept.
type transition struct {
	existed  bool
	was, now *kinds.Object
}

// New makes a Source. It asks nothing of the API server.
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
		pending: map[kinds.Key]transition{}, complaints: map[kinds.Key][]diag.Diagnostic{},
		timeouts: defaultTimeouts(), seed: maphash.MakeSeed(), reading: map[wantedIn]*wantedFeeds{},
	}
	if s.limiter = opts.Client.RateLimiter; s.limiter == nil {
		s.limiter = flowcontrol.NewTokenBucketRateLimiter(cmp.Or(opts.Client.QPS, DefaultQPS), cmp.Or(opts.Client.Burst, DefaultBurst))
	}
	for _, k := range opts.Kinds {
		if slices.ContainsFunc(s.feeds, func(f *feed) bool { return f.kind == k }) {
			return nil, fmt.Errorf("kind %s is listed twice", k.Name)
		}
		for _, only := range split(opts.Only[k]) {
			s.feeds = append(s.feeds, newFeed(s, k, only))
		}
		if coreOf(k) == nil && s.definitions == nil {
			s.definitions = newDefinitions(s)
		}
	}
	return s, nil
}

// split returns the restrictions that together are only, each of one name at most: a field selector can name only one.
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

// HasSynced reports whether the handler has got, and handled, everything that the API server had.
func (s *Source) HasSynced() bool { return s.synced.Load() }

// Current reports whether all that there is of a kind was read and handed on, and is followed: while its API server
// does not answer, what was read may be old.
func (s *Source) Current(k *kinds.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.allFeeds {
		if f.kind == k && (f.trouble != nil || f.running && !f.synced && !f.passedOver()) {
			return false
		}
	}
	return s.synced.Load()
}

// Findings returns what is wrong at present. The caller must not modify it.
func (s *Source) Findings() []diag.Diagnostic { return s.findings.Get() }

// When it is logged what the first load waits for: at first, and then again and again.
const (
	firstNotice = time.Second
	waitNotice  = 30 * time.Second
)

// Run reads everything, hands it to the handler, and then follows changes until ctx ends, which is no error: an API
// server that cannot be reached is asked again until it can. Run is called once.
func (s *Source) Run(ctx context.Context) error {
	// What a reflector has to say of each attempt is of interest only to who looks for it: level debug. Findings hold
	// the rest.
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
	s.wake() // what reads single objects alone has everything until they are wanted
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

// readers counts those of this source for the metric.
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
		if w.trouble != nil {
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

// wake makes Run look for what there is to do.
func (s *Source) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Unread names the kinds that keep HasSynced false, because they have not been read yet.
func (s *Source) Unread() []string {
	if s.synced.Load() {
		return nil
	}
	unread, _ := s.waiting()
	return unread
}

// waiting names what has not been read yet, and what is in the way of the first of it, if anything is.
func (s *Source) waiting() (kinds []string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.definitions; d != nil && !d.decided() {
		return []string{"CustomResourceDefinition"}, d.trouble
	}
	for f := range s.allFeeds {
		if !f.settled() {
			kinds, why = append(kinds, f.String()), cmp.Or(why, f.trouble)
			if f.doubtful() {
				why = cmp.Or(why, errNotFound)
			}
		}
	}
	return kinds, why
}

// changed notes what became of an object. The caller holds mu.
func (s *Source) changed(key kinds.Key, existed bool, was, now *kinds.Object) {
	t, again := s.pending[key]
	if !again {
		t.existed, t.was = existed, was
	}
	t.now = now
	s.pending[key] = t
}

// expect makes room for the changes of a first load.
func (s *Source) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) < n {
		pending := make(map[kinds.Key]transition, len(s.pending)+n)
		maps.Copy(pending, s.pending)
		s.pending = pending
	}
}

// complain sets the findings about an object. The caller holds mu.
func (s *Source) complain(key kinds.Key, list []diag.Diagnostic) {
	if len(list) == 0 {
		delete(s.complaints, key)
		return
	}
	s.complaints[key] = list
}

// deliver hands on what has changed since the last time.
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
