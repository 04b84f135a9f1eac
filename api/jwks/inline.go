package jwks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Nobody is a key set by which no token is valid, because nobody can know the private key: its point on P-256 is the
// SHA-256 of "a key that nobody holds 0" as x, with the even y.
const Nobody = `{"keys":[{"kty":"EC","crv":"P-256","kid":"nobody","alg":"ES256","use":"sig","x":"-hOZ08elhHQ-QaIaLCkciudGVUnH0Sv0z7ghplqie4c","y":"aBiMHCIRhLbV2d2kop_GanRmmBGSTXtFazATLbLr32g"}]}`

// Inline returns a key set that a user wrote, without private keys and without keys that cannot be used, and why each
// of these was left out or changed. Where nothing was, it is the text itself. Shared secrets stay: whoever writes one
// here means it. It is an error if no key is left.
func Inline(text string) (set string, changed []string, err error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return "", nil, errors.New("no JSON object with a list of keys")
	}
	if len(raw.Keys) > maxKeys {
		return "", nil, fmt.Errorf("%d keys: there may be %d", len(raw.Keys), maxKeys)
	}
	var keys []json.RawMessage
	for i, r := range raw.Keys {
		public, err := inline(r)
		if err != nil {
			changed = append(changed, fmt.Sprintf("key %d is left out: %v", i, err))
			continue
		}
		if !slices.Equal(public, r) {
			changed = append(changed, fmt.Sprintf("the private part of key %d is left out", i))
		}
		keys = append(keys, public)
	}
	switch {
	case keys == nil && changed == nil:
		return "", nil, errors.New("there are no keys")
	case keys == nil:
		return "", nil, fmt.Errorf("no usable key: %s", changed[0])
	case changed == nil:
		return text, nil, nil
	}
	out, err := json.Marshal(map[string]any{"keys": keys})
	return string(out), changed, err
}

// inline returns a key without its private part.
func inline(r json.RawMessage) (json.RawMessage, error) {
	var k jose.JSONWebKey
	if err := k.UnmarshalJSON(r); err != nil {
		return nil, errors.New("it cannot be parsed")
	}
	if secret, ok := k.Key.([]byte); ok {
		if len(secret) == 0 {
			return nil, errors.New("it is empty")
		}
		return r, nil
	}
	public := k.Public()
	if err := usable(public); err != nil {
		return nil, err
	}
	if k.IsPublic() {
		return r, nil
	}
	return public.MarshalJSON()
}
