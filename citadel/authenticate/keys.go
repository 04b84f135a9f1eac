package authenticate

import (
	"context"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/istiod-lite/istiod-lite/api/jwks"
)

// Times of a KeySet.
const (
	refreshAfter  = time.Minute      // a set is not fetched more often than that
	refreshAlways = 20 * time.Minute // an older set is fetched again when it is used
	keysExpire    = 24 * time.Hour   // without a fetch that succeeds
)

// KeySet is the keys of an issuer, fetched when they are first needed, and again for an ID that is not known. It is
// safe for concurrent use.
type KeySet struct {
	fetch func(context.Context) ([]byte, error)
	now   func() time.Time
	one   singleflight.Group

	mu      sync.Mutex
	keys    *jwks.Set
	tried   time.Time // to fetch
	fetched time.Time
}

// NewKeySet returns a KeySet. fetch returns a JSON Web Key Set, and must be bounded in size and time.
func NewKeySet(fetch func(context.Context) ([]byte, error), now func() time.Time) *KeySet {
	return &KeySet{fetch: fetch, now: now}
}

// Key returns the key of an ID, nil if there is none. It reports false while no keys are known: none were ever fetched,
// or the last good ones are too old.
func (s *KeySet) Key(ctx context.Context, id string) (*jose.JSONWebKey, bool) {
	if keys, fetch := s.current(id); !fetch {
		return keyOf(keys, id)
	}
	done := s.one.DoChan("", func() (any, error) { // it goes on for others when this caller leaves
		return nil, s.refresh(context.WithoutCancel(ctx))
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
	keys, _ := s.current(id)
	return keyOf(keys, id)
}

func keyOf(keys *jwks.Set, id string) (*jose.JSONWebKey, bool) {
	if keys == nil {
		return nil, false
	}
	return keys.Key(id), true
}

// current returns the keys that are known, and reports whether they should be fetched.
func (s *KeySet) current(id string) (*jwks.Set, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.keys != nil && now.Sub(s.fetched) > keysExpire {
		s.keys = nil
	}
	stale := s.keys == nil || s.keys.Key(id) == nil || now.Sub(s.fetched) > refreshAlways
	return s.keys, stale && now.Sub(s.tried) >= refreshAfter
}

func (s *KeySet) refresh(ctx context.Context) error {
	body, err := s.fetch(ctx)
	var keys *jwks.Set
	if err == nil {
		keys, err = jwks.Parse(body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried = s.now(); err != nil { // callers until now have waited for this answer
		return err
	}
	s.keys, s.fetched = keys, s.tried
	return nil
}
