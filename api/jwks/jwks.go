package jwks

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/fips140"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Bounds of a set.
const (
	maxKeys = 100
	maxName = 512 // in bytes, also of its algorithm
	minRSA  = 2048
	maxRSA  = 8192
)

// Set is the public keys of an issuer.
type Set struct{ keys []jose.JSONWebKey }

// Parse returns the public keys of a JSON text. It leaves out keys that are shared secrets, of an unknown kind, not for
// signatures, or too weak, and the private parts of other keys. It is an error if no key is left.
func Parse(text []byte) (*Set, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, errors.New("no JSON object with a list of keys")
	}
	if len(raw.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys: there may be %d", len(raw.Keys), maxKeys)
	}
	s := &Set{}
	var last error
	for _, r := range raw.Keys {
		var k jose.JSONWebKey
		if err := decode(&k, r); err != nil {
			last = errors.New("a key cannot be parsed")
			continue
		}
		if k = k.Public(); k.Key == nil {
			last = errors.New("a key is a shared secret")
			continue
		}
		if last = usable(k); last == nil {
			// Certificates of the key are dropped: they are not used, and a chain may be long.
			s.keys = append(s.keys, jose.JSONWebKey{Key: k.Key, KeyID: k.KeyID, Algorithm: k.Algorithm, Use: k.Use})
		}
	}
	if s.keys == nil {
		last = cmp.Or(last, errors.New("there are no keys"))
		return nil, fmt.Errorf("no usable key: %w", last)
	}
	return s, nil
}

// decode decodes a key. If the key has certificates, go-jose compares their thumbprints with the ones that the key has,
// which protects nothing here. Computing a SHA-1 thumbprint panics in Go's mode fips140=only.
func decode(k *jose.JSONWebKey, text []byte) (err error) {
	fips140.WithoutEnforcement(func() { err = k.UnmarshalJSON(text) })
	return err
}

func usable(k jose.JSONWebKey) error {
	if len(k.KeyID) > maxName || len(k.Algorithm) > maxName {
		return fmt.Errorf("the ID of a key, or its algorithm, has more than %d bytes", maxName)
	}
	if k.Use != "" && k.Use != "sig" {
		return fmt.Errorf("a key is for %.20q", k.Use)
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < minRSA || n > maxRSA || key.E < 3 {
			return fmt.Errorf("an RSA key of %d bits", n)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("a key of type %T", key)
	}
	return nil
}

// Key returns the key with an ID. Without an ID it returns the only key, if there is exactly one. It returns nil if
// there is none.
func (s *Set) Key(id string) *jose.JSONWebKey {
	if id == "" && len(s.keys) == 1 {
		return &s.keys[0]
	}
	for i := range s.keys {
		if id != "" && s.keys[i].KeyID == id {
			return &s.keys[i]
		}
	}
	return nil
}

// Encode returns the set as JSON, with public keys alone.
func (s *Set) Encode() ([]byte, error) { return json.Marshal(jose.JSONWebKeySet{Keys: s.keys}) }
