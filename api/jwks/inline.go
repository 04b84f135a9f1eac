package jwks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Key sets that verify no token, because the private key is unknown: its point on P-256 has as x the SHA-256 of
// "a key that nobody holds 0", with the even y. They differ in the key ID, which tells a reader of a proxy's
// configuration why no token is valid.
const (
	AcceptsNone = noneBefore + "nobody" + noneAfter      // there is no usable key
	NotFetched  = noneBefore + "not-fetched" + noneAfter // the server has not fetched the keys yet

	noneBefore = `{"keys":[{"kty":"EC","crv":"P-256","kid":"`
	noneAfter  = `","alg":"ES256","use":"sig",` +
		`"x":"-hOZ08elhHQ-QaIaLCkciudGVUnH0Sv0z7ghplqie4c","y":"aBiMHCIRhLbV2d2kop_GanRmmBGSTXtFazATLbLr32g"}]}`
)

// Inline returns a key set that a user wrote without private and unusable keys, and why each of these was left out or
// changed. If none was, it returns the text itself. Shared secrets stay, because a user who writes one here intends it.
// It is an error if no key is left.
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
	if keys != nil && changed == nil && !keysOnce(text) {
		changed = append(changed, `it has several lists of keys, or one by another name than "keys": the last one counts`)
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

// Shared reports whether a key set has a key that both makes and verifies signatures.
func Shared(text string) bool {
	var set struct {
		Keys []struct {
			Kty string `json:"kty"`
		} `json:"keys"`
	}
	if json.Unmarshal([]byte(text), &set) != nil {
		return false
	}
	for _, k := range set.Keys {
		if k.Kty == "oct" {
			return true
		}
	}
	return false
}

// keysOnce reports whether a JSON object has exactly one list called keys, in lower case. Go's decoder and Envoy's
// decode other objects differently.
func keysOnce(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	var names []string
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return slices.Equal(names, []string{"keys"})
		}
		switch name, ok := token.(string); {
		case token == json.Delim('{') || token == json.Delim('['):
			depth++
		case token == json.Delim('}') || token == json.Delim(']'):
			depth--
		case ok && depth == 1 && strings.EqualFold(name, "keys"): // a string value is counted too, but then the set is only encoded again
			names = append(names, name)
		}
	}
}

// private reports whether a key has a member that only private keys have.
func private(r json.RawMessage) bool {
	var member map[string]json.RawMessage
	if json.Unmarshal(r, &member) != nil {
		return true
	}
	for name := range member {
		if slices.Contains([]string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"}, strings.ToLower(name)) {
			return true
		}
	}
	return false
}

// inline returns a key without its private part.
func inline(r json.RawMessage) (json.RawMessage, error) {
	var k jose.JSONWebKey
	if err := decode(&k, r); err != nil {
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
	if k.IsPublic() && !private(r) {
		return r, nil
	}
	public.Certificates = nil // MarshalJSON computes their SHA-1 thumbprints
	return public.MarshalJSON()
}
