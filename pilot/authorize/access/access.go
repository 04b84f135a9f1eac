package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Servers finds the API server of a cluster.
type Servers interface {
	// Get returns a function that asks the API server of a cluster, by the cluster's ID, and reports whether there is
	// such a cluster. The error says why its API server cannot be asked.
	Get(cluster string) (ask Ask, known bool, err error)
}

// Options of Reviews.
type Options struct {
	Servers   Servers
	ClusterID string // of the server's own cluster, which has an empty name too
	Logger    *slog.Logger
}

// Times and bounds of questions.
const (
	fresh           = 5 * time.Second  // how long an answer is good for a new request
	resync          = 30 * time.Second // between two questions about an identity that is allowed; others: fresh
	retryInterval   = time.Second      // after a failure
	questionTimeout = 5 * time.Second
	atOnce          = 8 // open questions about one cluster
)

// Reviews keeps what is known of the identities that are watched. Safe for concurrent use.
type Reviews struct {
	o    Options
	wake chan struct{}

	mu    sync.Mutex
	known map[subject]*review
	open  map[string]int // questions, by cluster: one that does not answer holds up no other
}

// subject is what a question is about: an identity in a cluster.
type subject struct {
	cluster string
	id      identity.ID
}

// review is what is known of one subject.
type review struct {
	watchers map[*func()]struct{}
	answered time.Time // of the last answer; zero: there was none
	allowed  bool
	asking   bool      // a question is open
	failed   bool      // the last question failed; a failure that goes on is logged once
	next     time.Time // of the next question
}

// New makes Reviews. Run asks.
func New(o Options) *Reviews {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Reviews{o: o, wake: make(chan struct{}, 1), known: map[subject]*review{}, open: map[string]int{}}
}

// subject returns the subject of a question. The server's own cluster is one cluster, by either name.
func (r *Reviews) subject(cluster string, id identity.ID) subject {
	cluster = cmp.Or(cluster, r.o.ClusterID)
	return subject{cluster, id}
}

// Watch has an identity asked for in a cluster until stop is called. After each answer, notify is called, from any
// goroutine.
func (r *Reviews) Watch(cluster string, identity identity.ID, notify func()) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.subject(cluster, identity)
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

// Allowed reports whether an identity that is watched in a cluster may list the Secrets of its namespace there, and
// whether that is known. If the last answer is not fresh, it is asked for at once.
func (r *Reviews) Allowed(cluster string, identity identity.ID) (allowed, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.known[r.subject(cluster, identity)]
	if x == nil {
		return false, false
	}
	if !x.answered.IsZero() && time.Since(x.answered) <= fresh {
		return x.allowed, true
	}
	if !x.asking && time.Until(x.next) > retryInterval { // a question that has just failed is not repeated for each request
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
			questions.Add(1)
			safe.Go(r.o.Logger, "access review", func() {
				defer questions.Done()
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

// due returns the subjects to ask about now, and when there may be more. Within a cluster, the subjects that have
// waited longest come first.
func (r *Reviews) due(now time.Time) (list []subject, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = now.Add(time.Hour)
	for id, x := range r.known {
		switch {
		case x.asking:
		case !x.next.After(now):
			list = append(list, id)
		case x.next.Before(next):
			next = x.next
		}
	}
	slices.SortFunc(list, func(a, b subject) int { return r.known[a].next.Compare(r.known[b].next) })
	return slices.DeleteFunc(list, func(id subject) bool {
		if r.open[id.cluster] >= atOnce {
			return true // it has its turn after the answer to another question
		}
		r.known[id].asking = true
		r.open[id.cluster]++
		return false
	}), next
}

func (r *Reviews) ask(ctx context.Context, id subject) {
	allowed, failure := false, errors.New("the question ended in a panic")
	defer func() { r.note(ctx, id, allowed, failure) }()
	asked, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	switch question, known, err := r.o.Servers.Get(id.cluster); {
	case err != nil:
		failure = err
	case !known:
		failure = fmt.Errorf("cluster %.200q is not known", id.cluster)
	default:
		allowed, failure = question(asked, id.id)
	}
}

// note records the answer to a question about a subject, or its failure.
func (r *Reviews) note(ctx context.Context, id subject, allowed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.rouse()
	if r.open[id.cluster]--; r.open[id.cluster] == 0 {
		delete(r.open, id.cluster)
	}
	x := r.known[id]
	if x == nil {
		return
	}
	if err != nil && !x.failed && ctx.Err() == nil {
		r.o.Logger.Warn("failed to review the access of a service account to Secrets: it gets no further ones", "id", id.id.String(), "cluster", id.cluster, "err", err)
	}
	x.asking, x.failed = false, err != nil
	if err != nil {
		x.next = time.Now().Add(retryInterval)
		return
	}
	x.allowed, x.answered = allowed, time.Now()
	x.next = x.answered.Add(resync)
	if !allowed { // a proxy waits for its secrets
		x.next = x.answered.Add(fresh)
	}
	for notify := range x.watchers {
		(*notify)()
	}
}
