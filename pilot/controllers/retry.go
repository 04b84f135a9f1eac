package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
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
	// maxConflicts is the number of consecutive conflicts, or of the same writes before pauseReset, that becomes a
	// finding, because another client changes the object constantly.
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
		logger.Error(message, "err", err) //nolint:sloglint // callers pass constants
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
	sum   string        // checksum of the last writes that succeeded; empty if none did
	again int           // number of consecutive reconciles that have written the same as the one before
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

// wrote records that a reconcile has written something with a checksum.
func (p *pauses) wrote(request reconcile.Request, sum string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.writes) >= p.most {
		maps.DeleteFunc(p.writes, func(_ reconcile.Request, w writes) bool { return time.Since(w.last) > pauseReset })
		p.most = 2*len(p.writes) + 100
	}
	w := p.writes[request]
	if w.again++; sum == "" || sum != w.sum {
		w.again = 0
	}
	w.last, w.pause, w.sum = time.Now(), min(max(minPause, 2*w.pause), maxPause), sum
	p.writes[request] = w
}

// undone returns how long a request is regarded as one whose writes another client reverts, or 0 if it is not.
func (p *pauses) undone(request reconcile.Request) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.writes[request]
	if w.again < maxConflicts {
		return 0
	}
	return max(0, pauseReset-time.Since(w.last))
}

func (p *pauses) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = map[reconcile.Request]writes{}
}

// written is the context key of a *sent.
type written struct{}

// sent is what one reconcile has written.
type sent struct {
	wrote bool
	done  hash.Hash // of the writes that have succeeded; nil if none has
}

// sum returns the checksum of the writes that have succeeded, or an empty string if none has.
func (s *sent) sum() string {
	if s.done == nil {
		return ""
	}
	return string(s.done.Sum(nil))
}

// unversioned returns the JSON object of a request without the version of the object that it names, in fmt's format,
// which sorts keys.
func unversioned(body io.Reader) map[string]any {
	var o map[string]any
	_ = json.NewDecoder(body).Decode(&o) // a deletion may have no body
	if meta, ok := o["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
	}
	return o
}

// noteWrites returns a transport that records writes in the context of their reconcile. It is a function for
// rest.Config.Wrap.
func noteWrites(next http.RoundTripper) http.RoundTripper { return noting{next} }

type noting struct{ next http.RoundTripper }

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	s, reconciles := r.Context().Value(written{}).(*sent)
	if !reconciles || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return n.next.RoundTrip(r)
	}
	s.wrote = true
	response, err := n.next.RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusMultipleChoices && !r.URL.Query().Has("dryRun") && r.GetBody != nil {
		if s.done == nil {
			s.done = sha256.New()
		}
		if body, err := r.GetBody(); err == nil {
			_, _ = fmt.Fprintln(s.done, r.Method, r.URL, unversioned(body))
		}
	}
	return response, err
}
