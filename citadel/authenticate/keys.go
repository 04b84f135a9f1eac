package authenticate

import (
	"context"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/istiod-lite/istiod-lite/api/jwks"
)

// KeySet holds the keys of an issuer. It fetches them when they are first needed, and again when a key ID is unknown.
// Safe for concurrent use.
type KeySet struct{ keys *latest[*jwks.Set] }

// NewKeySet returns a KeySet. fetch returns a JSON Web Key Set, and must be bounded in size and time.
func NewKeySet(fetch func(context.Context) ([]byte, error)) *KeySet {
	return &KeySet{&latest[*jwks.Set]{ask: func(ctx context.Context) (*jwks.Set, error) {
		body, err := fetch(ctx)
		if err != nil {
			return nil, err
		}
		return jwks.Parse(body)
	}}}
}

// Key returns the key with an ID, or nil if there is none. It is an error if no keys were fetched yet or the last good
// ones are too old.
func (s *KeySet) Key(ctx context.Context, id string) (*jose.JSONWebKey, error) {
	keys, err := s.keys.get(ctx, func(keys *jwks.Set) bool { return keys.Key(id) == nil })
	if err != nil {
		return nil, fmt.Errorf("the issuer's keys are not known: %w", err)
	}
	return keys.Key(id), nil
}
