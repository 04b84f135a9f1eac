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

// Servers finds the API servers of clusters.
type Servers interface {
	// Get returns the function that asks the API server of the cluster with an ID. known is false if there is no such
	// cluster. The error says why its API server cannot be used.
	Get(cluster string) (ask Ask, known bool, err error)
}

// Options configure Reviews.
type Options struct {
	Servers Servers
	// ClusterID is the ID of the server's own cluster. The empty name stands for the same cluster.
	ClusterID string
	Logger    *slog.Logger
}

// Times and bounds of access reviews.
const (
	fresh           = 5 * time.Second  // an answer is used for this long for a new request
	resync          = 30 * time.Second // between two reviews of an allowed identity; a denied one is reviewed after fresh
	retryInterval   = time.Second      // after a failed review
	questionTimeout = 5 * time.Second
	maxOpen         = 8 // open reviews of one cluster
)

// Reviews caches the access of watched identities. It is safe for concurrent use.
type Reviews struct {
	o    Options
	wake chan struct{}

	mu      sync.Mutex
	reviews map[subject]*review
	// open is the number of reviews in progress, by cluster. The bound is per cluster, so that one whose API server
	// hangs does not delay the others.
	open map[string]int
}

// subject identifies a review: an identity in a cluster.
type subject struct {
	cluster string
	id      identity.ID
}

// review is the state of one subject.
type review struct {
	watchers   map[*func()]struct{}
	answered   time.Time // time of the last answer, or zero
	allowed    bool
	inProgress bool      // a review is in progress
	failed     bool      // the last review failed; only the first failure in a row is logged
	next       time.Time // time of the next review
}

// New returns Reviews. They make no requests until Run is called.
func New(o Options) *Reviews {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Reviews{o: o, wake: make(chan struct{}, 1), reviews: map[subject]*review{}, open: map[string]int{}}
}

// subject returns the key of a review. Both names of the server's own cluster yield the same key.
func (r *Reviews) subject(cluster string, id identity.ID) subject {
	cluster = cmp.Or(cluster, r.o.ClusterID)
	return subject{cluster, id}
}

// Watch keeps the access of an identity in a cluster under review until stop is called. notify is called after each
// answer, from any goroutine, and must not call Reviews.
func (r *Reviews) Watch(cluster string, identity identity.ID, notify func()) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.subject(cluster, identity)
	x := r.reviews[id]
	if x == nil {
		x = &review{watchers: map[*func()]struct{}{}}
		r.reviews[id] = x
		r.signal()
	}
	x.watchers[&notify] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(x.watchers, &notify); len(x.watchers) == 0 && r.reviews[id] == x {
			delete(r.reviews, id)
		}
	}
}

// Allowed reports whether a watched identity may list the Secrets of its namespace in a cluster. known is false if
// the last answer is missing or older than fresh. Allowed then requests a review and returns at once.
func (r *Reviews) Allowed(cluster string, identity identity.ID) (allowed, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.reviews[r.subject(cluster, identity)]
	if x == nil {
		return false, false
	}
	if !x.answered.IsZero() && time.Since(x.answered) <= fresh {
		return x.allowed, true
	}
	// A review that has just failed is not repeated for each request.
	if !x.inProgress && time.Until(x.next) > retryInterval {
		x.next = time.Time{}
		r.signal()
	}
	return false, false
}

func (r *Reviews) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run makes the reviews until ctx ends. It returns nil when all have ended.
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

// due returns the subjects to review now, marked as such, and the time of the next review after them. Within a
// cluster, subjects that have waited longest come first.
func (r *Reviews) due(now time.Time) (list []subject, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = now.Add(time.Hour)
	for id, x := range r.reviews {
		switch {
		case x.inProgress:
		case !x.next.After(now):
			list = append(list, id)
		case x.next.Before(next):
			next = x.next
		}
	}
	slices.SortFunc(list, func(a, b subject) int { return r.reviews[a].next.Compare(r.reviews[b].next) })
	return slices.DeleteFunc(list, func(id subject) bool {
		if r.open[id.cluster] >= maxOpen {
			return true // it follows when another review of the cluster ends
		}
		r.reviews[id].inProgress = true
		r.open[id.cluster]++
		return false
	}), next
}

func (r *Reviews) ask(ctx context.Context, id subject) {
	allowed, failure := false, errors.New("the access review panicked")
	defer func() { r.note(ctx, id, allowed, failure) }()
	timed, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	switch ask, known, err := r.o.Servers.Get(id.cluster); {
	case err != nil:
		failure = err
	case !known:
		failure = fmt.Errorf("cluster %.200q is not known", id.cluster)
	default:
		allowed, failure = ask(timed, id.id)
	}
}

// note records the result of a review and wakes Run.
func (r *Reviews) note(ctx context.Context, id subject, allowed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.signal()
	if r.open[id.cluster]--; r.open[id.cluster] == 0 {
		delete(r.open, id.cluster)
	}
	x := r.reviews[id]
	if x == nil {
		return
	}
	if err != nil && !x.failed && ctx.Err() == nil {
		r.o.Logger.Warn("failed to review the access of a service account to Secrets: it receives no further ones",
			"id", id.id.String(), "cluster", id.cluster, "err", err)
	}
	x.inProgress, x.failed = false, err != nil
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
