package authenticate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/istiod-lite/istiod-lite/api/safe"
)

// Timing of requests to an issuer.
const (
	minInterval = time.Minute      // minimum time between two requests
	maxAge      = 20 * time.Minute // age at which a used answer is fetched again
	answerTTL   = 24 * time.Hour   // age at which an answer is no longer used
)

// latest caches the last good answer of an issuer and fetches it on demand. Callers that need the same answer wait for
// one request, each no longer than its own context. Safe for concurrent use.
type latest[T any] struct {
	ask func(context.Context) (T, error) // must be bounded in size and time
	one singleflight.Group

	mu       sync.Mutex
	value    T
	failure  error     // error of the last request
	tried    time.Time // time of the last request
	answered time.Time // time of value; zero if there was no answer yet
}

// get returns the last good answer. It fetches a new one if there is none, if it is old, or if lacks reports that it
// lacks what the caller needs. An error means that there is no answer, and says why.
func (l *latest[T]) get(ctx context.Context, lacks func(T) bool) (T, error) {
	value, due, err := l.current(lacks)
	if !due {
		return value, err
	}
	done := l.one.DoChan("", func() (any, error) {
		if _, due, _ := l.current(lacks); due { // a request may have finished between the two checks
			l.refresh(context.WithoutCancel(ctx)) // the request goes on for other callers when this one leaves
		}
		return nil, nil
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
	value, _, err = l.current(lacks)
	return value, err
}

// current returns the last good answer, and reports whether to fetch a new one.
func (l *latest[T]) current(lacks func(T) bool) (value T, due bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	waited := now.Sub(l.tried) >= minInterval
	if l.answered.IsZero() || now.Sub(l.answered) > answerTTL {
		err = errors.New("there is no answer yet")
		if l.failure != nil {
			err = l.failure
		}
		return value, waited, err
	}
	return l.value, waited && (lacks(l.value) || now.Sub(l.answered) > maxAge), nil
}

func (l *latest[T]) refresh(ctx context.Context) {
	var value T
	var err error
	if p := safe.Do("ask an issuer", func() { value, err = l.ask(ctx) }); p != nil {
		err = fmt.Errorf("failed to parse the answer: %w", p)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried, l.failure = time.Now(), err // all callers until now have waited for this answer
	if err == nil {
		l.value, l.answered = value, l.tried
	}
}
