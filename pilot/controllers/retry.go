package controllers

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

// Times of a request, which stands for one object.
const (
	// minPause is the least time between two reconciles that write. It doubles, up to maxPause, while another client
	// reverts the writes, and is reset after pauseReset without a write.
	minPause   = time.Second
	maxPause   = 4 * time.Second
	pauseReset = 30 * time.Second
	// maxConflicts is the number of consecutive conflicts that becomes a finding, because another client changes the
	// object constantly.
	maxConflicts = 10
	// reconcileTimeout bounds one reconcile with all its requests to the API server.
	reconcileTimeout = 30 * time.Second
)

// Retry calls try until it returns nil or ctx ends. It logs each error with a message, and backs off.
func Retry(ctx context.Context, logger *slog.Logger, message string, try func() error) {
	for pause := limits.MinBackoff; ctx.Err() == nil; pause = min(2*pause, limits.MaxBackoff) {
		err := try()
		if err == nil || ctx.Err() != nil {
			return
		}
		logger.Error(message, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// backoff is the rate limiter of a queue. An event of an object does not wait for it. It forgets the failures of a
// request only when the request has succeeded, because the queue also calls Forget when a request is postponed.
type backoff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
}

func newBackoff() backoff {
	return backoff{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](limits.MinBackoff, limits.MaxBackoff)}
}

// Forget is a no-op; see backoff.
func (backoff) Forget(reconcile.Request) {}

func (b backoff) succeeded(request reconcile.Request) { b.TypedRateLimiter.Forget(request) }

// pauses delays reconciles that write repeatedly.
type pauses struct {
	mu     sync.Mutex
	writes map[reconcile.Request]writes
	most   int // len(writes) at which old entries are dropped, because most objects are written once
}

// writes records the writes of one request.
type writes struct {
	last  time.Time
	pause time.Duration // least time after last
}

// wait returns the time until a request may be reconciled, or 0.
func (p *pauses) wait(request reconcile.Request) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, known := p.writes[request]
	if !known {
		return 0
	}
	since := time.Since(w.last)
	if since > pauseReset {
		delete(p.writes, request)
	}
	return max(0, w.pause-since)
}

// wrote records that a reconcile has written.
func (p *pauses) wrote(request reconcile.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.writes) >= p.most {
		maps.DeleteFunc(p.writes, func(_ reconcile.Request, w writes) bool { return time.Since(w.last) > pauseReset })
		p.most = 2*len(p.writes) + 100
	}
	p.writes[request] = writes{time.Now(), min(max(minPause, 2*p.writes[request].pause), maxPause)}
}

func (p *pauses) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = map[reconcile.Request]writes{}
}

// written is the context key of an *atomic.Bool that is set when the reconcile has sent a write.
type written struct{}

// noteWrites returns a transport that records writes in the context of their reconcile. It is a function for
// rest.Config.Wrap.
func noteWrites(next http.RoundTripper) http.RoundTripper { return noting{next} }

type noting struct{ next http.RoundTripper }

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		noteWrite(r.Context())
	}
	return n.next.RoundTrip(r)
}

func noteWrite(ctx context.Context) {
	if wrote, ok := ctx.Value(written{}).(*atomic.Bool); ok {
		wrote.Store(true)
	}
}
