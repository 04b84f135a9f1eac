package access

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Options of Reviews. Zero durations stand for the defaults.
type Options struct {
	// Ask asks whether an identity may list the Secrets of its namespace.
	Ask    func(ctx context.Context, id identity.ID) (bool, error)
	Logger *slog.Logger

	Fresh   time.Duration // how long an answer counts for what is asked for anew, 5 s
	Again   time.Duration // how often an identity that is watched and allowed is asked for, 30 s; others: Fresh
	Retry   time.Duration // after a failure, 1 s
	Timeout time.Duration // of a question, 5 s
}

// atOnce is how many questions may be open.
const atOnce = 8

// Reviews keeps what is known of the identities that are watched. Safe for concurrent use.
type Reviews struct {
	o    Options
	wake chan struct{}
	open *semaphore.Weighted

	mu    sync.Mutex
	known map[identity.ID]*review
}

// review is what is known of one identity.
type review struct {
	watchers map[*func()]struct{}
	answered time.Time // of the last answer; zero: there was none
	allowed  bool
	asking   bool
	next     time.Time // when it is asked for again
}

// New makes Reviews. Run asks.
func New(o Options) *Reviews {
	for d, standard := range map[*time.Duration]time.Duration{&o.Fresh: 5 * time.Second, &o.Again: 30 * time.Second, &o.Retry: time.Second, &o.Timeout: 5 * time.Second} {
		if *d == 0 {
			*d = standard
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reviews{o: o, wake: make(chan struct{}, 1), open: semaphore.NewWeighted(atOnce), known: map[identity.ID]*review{}}
}

// Watch has an identity asked for until stop is called. After each answer, notify is called, from any goroutine.
func (r *Reviews) Watch(id identity.ID, notify func()) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.known[id]
	if x == nil {
		x = &review{watchers: map[*func()]struct{}{}}
		r.known[id] = x
		r.rouse()
	}
	x.watchers[&notify] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(x.watchers, &notify); len(x.watchers) == 0 && r.known[id] == x {
			delete(r.known, id)
		}
	}
}

// Allowed reports whether an identity that is watched may list the Secrets of its namespace, and whether that is known.
// If the last answer is not fresh, it is asked for at once.
func (r *Reviews) Allowed(id identity.ID) (allowed, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.known[id]
	if x == nil {
		return false, false
	}
	if !x.answered.IsZero() && time.Since(x.answered) <= r.o.Fresh {
		return x.allowed, true
	}
	if !x.asking && time.Until(x.next) > r.o.Retry { // a question that has just failed is not repeated for each request
		x.next = time.Time{}
		r.rouse()
	}
	return false, false
}

func (r *Reviews) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run asks until ctx ends.
func (r *Reviews) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var questions sync.WaitGroup
	defer questions.Wait()
	for {
		due, next := r.due(time.Now())
		for _, id := range due {
			if r.open.Acquire(ctx, 1) != nil {
				return nil
			}
			questions.Add(1)
			safe.Go(r.o.Logger, "access review", func() {
				defer questions.Done()
				defer r.open.Release(1)
				r.ask(ctx, id)
			})
		}
		timer.Reset(max(time.Until(next), 0))
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// due returns the identities to ask for now, and when there may be more.
func (r *Reviews) due(now time.Time) (list []identity.ID, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = now.Add(time.Hour)
	for id, x := range r.known {
		switch {
		case x.asking:
		case !x.next.After(now):
			x.asking = true
			list = append(list, id)
		case x.next.Before(next):
			next = x.next
		}
	}
	return list, next
}

func (r *Reviews) ask(ctx context.Context, id identity.ID) {
	asked, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	allowed, err := r.o.Ask(asked, id)
	if err != nil && ctx.Err() == nil {
		r.o.Logger.Warn("whether a service account may list Secrets is not known: it gets none that it does not have", "id", id.String(), "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.known[id]
	if x == nil {
		return
	}
	x.asking = false
	if err != nil {
		x.next = time.Now().Add(r.o.Retry)
		r.rouse()
		return
	}
	x.allowed, x.answered = allowed, time.Now()
	x.next = x.answered.Add(r.o.Again)
	if !allowed { // somebody waits for it
		x.next = x.answered.Add(r.o.Fresh)
	}
	r.rouse()
	for notify := range x.watchers {
		(*notify)()
	}
}
