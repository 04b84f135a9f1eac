package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/istiod-lite/istiod-lite/api/limits"
)

// largeBody is the size in bytes from which a body counts among the large ones. They are few, and have memory of their
// own, so that they do not hold up all others.
const largeBody = 256 << 10

// Gate bounds what the webhooks of a server cost together. Safe for concurrent use.
type Gate struct {
	limits       limits.Limits
	small, large *semaphore.Weighted // bytes of bodies in memory
	reviews      *semaphore.Weighted // reviews at once
	reviewed     *semaphore.Weighted // bytes of what is reviewed at once
}

// NewGate returns a Gate that nothing has passed yet.
func NewGate(l limits.Limits) *Gate {
	return &Gate{
		limits: l,
		small:  semaphore.NewWeighted(l.WebhookBodies), large: semaphore.NewWeighted(2 * l.WebhookBody),
		reviews: semaphore.NewWeighted(int64(l.Reviews)), reviewed: semaphore.NewWeighted(l.ReviewedBytes),
	}
}

// refusal is an HTTP status in the place of a review.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// read returns the body of a request, in memory that release gives back. The error is a refusal.
func (g *Gate) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), g.limits.WebhookRead)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = http.NewResponseController(w).SetReadDeadline(deadline) // a server without it has a bound of its own
	size := r.ContentLength
	switch media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case size == 0:
		return nil, nil, refuse(http.StatusBadRequest, "no body found")
	case err != nil || media != "application/json":
		return nil, nil, refuse(http.StatusUnsupportedMediaType, "invalid Content-Type, want `application/json`")
	case r.Header.Get("Content-Encoding") != "":
		return nil, nil, refuse(http.StatusUnsupportedMediaType, "a body must not be encoded: leave out Content-Encoding")
	case size > g.limits.WebhookBody:
		_, _ = io.CopyN(io.Discard, r.Body, g.limits.WebhookBody) // a client that goes on sending reads no answer
		return nil, nil, refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", g.limits.WebhookBody)
	case size < 0: // it is not known
		size = g.limits.WebhookBody
	}
	memory := g.small
	if size > largeBody {
		memory = g.large
	}
	if memory.Acquire(ctx, size) != nil {
		return nil, nil, refuse(http.StatusTooManyRequests, "too many bodies are read: try again")
	}
	release = func() { memory.Release(size) }
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, g.limits.WebhookBody))
	if err == nil && len(body) > 0 {
		return body, release, nil
	}
	release()
	var large *http.MaxBytesError
	switch {
	case err == nil:
		err = refuse(http.StatusBadRequest, "no body found")
	case errors.As(err, &large):
		err = refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", g.limits.WebhookBody)
	case !time.Now().Before(deadline):
		err = refuse(http.StatusRequestTimeout, "the body did not arrive within %s", g.limits.WebhookRead)
	default:
		err = refuse(http.StatusBadRequest, "could not read the body: %v", err)
	}
	return nil, nil, err
}

// enter waits until some bytes may be reviewed. The error is a refusal.
func (g *Gate) enter(ctx context.Context, size int) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, g.limits.ReviewWait)
	defer cancel()
	busy := refuse(http.StatusTooManyRequests, "too many reviews at once: try again")
	weight := min(int64(size), g.limits.ReviewedBytes)
	if g.reviews.Acquire(ctx, 1) != nil {
		return nil, busy
	}
	if g.reviewed.Acquire(ctx, weight) != nil {
		g.reviews.Release(1)
		return nil, busy
	}
	return func() {
		g.reviewed.Release(weight)
		g.reviews.Release(1)
	}, nil
}
