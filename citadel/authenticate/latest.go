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

// Times of what is asked of an issuer.
const (
	refreshAfter  = time.Minute      // nothing is asked more often than that
	refreshAlways = 20 * time.Minute // an older answer is asked for again when it is used
	answersExpire = 24 * time.Hour   // without another one
)

// latest holds the last good answer to a question. It is asked when an answer is needed. Callers that need the same
// answer wait together, each no longer than its context. Safe for concurrent use.
type latest[T any] struct {
	ask func(context.Context) (T, error) // bounded in size and time
	one singleflight.Group

	mu       sync.Mutex
	value    T
	failure  error     // of the last try
	tried    time.Time // to ask
	answered time.Time // zero: never
}

// get returns the last good answer. It asks if there is none, if that is old, or if it lacks what the caller needs. An
// error means that there is no answer, and says why.
func (l *latest[T]) get(ctx context.Context, lacks func(T) bool) (T, error) {
	value, due, err := l.current(lacks)
	if !due {
		return value, err
	}
	done := l.one.DoChan("", func() (any, error) {
		if _, due, _ := l.current(lacks); due { // an answer may have come between the two checks
			l.refresh(context.WithoutCancel(ctx)) // it goes on for others when this caller leaves
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

// current returns the last good answer, and reports whether to ask.
func (l *latest[T]) current(lacks func(T) bool) (value T, due bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	waited := now.Sub(l.tried) >= refreshAfter
	if l.answered.IsZero() || now.Sub(l.answered) > answersExpire {
		err = errors.New("nobody has answered yet")
		if l.failure != nil {
			err = l.failure
		}
		return value, waited, err
	}
	return l.value, waited && (lacks(l.value) || now.Sub(l.answered) > refreshAlways), nil
}

func (l *latest[T]) refresh(ctx context.Context) {
	var value T
	var err error
	if p := safe.Do("ask an issuer", func() { value, err = l.ask(ctx) }); p != nil {
		err = fmt.Errorf("what it answers cannot be read: %w", p)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried, l.failure = time.Now(), err // callers until now have waited for this answer
	if err == nil {
		l.value, l.answered = value, l.tried
	}
}
