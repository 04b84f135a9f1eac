package authenticate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/jwks"
)

// Rule says which tokens of an OpenID provider are accepted: the JSON of JWT_RULE.
type Rule struct {
	Issuer    string   `json:"issuer"`
	JWKSURI   string   `json:"jwks_uri"` // optional; by default found in the issuer's discovery document
	Audiences []string `json:"audiences"`
}

// ParseRule returns the Rule of a JSON text.
func ParseRule(text string) (Rule, error) {
	var r struct {
		Rule
		Camel string `json:"jwksUri"` // spelling used in a RequestAuthentication
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r.Rule, fmt.Errorf("JWT_RULE: %w: it has issuer, jwks_uri and audiences", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return r.Rule, errors.New("JWT_RULE is more than one JSON object")
	}
	if r.JWKSURI != "" && r.Camel != "" {
		return r.Rule, errors.New("JWT_RULE has jwks_uri and jwksUri: remove one")
	}
	r.JWKSURI = cmp.Or(r.JWKSURI, r.Camel)
	if r.Issuer == "" || len(r.Audiences) == 0 {
		return r.Rule, errors.New("JWT_RULE needs issuer and audiences")
	}
	return r.Rule, nil
}

// OIDC authenticates callers by tokens of an OpenID provider whose subject is a service account.
type OIDC struct {
	Rule         Rule
	TrustDomains TrustDomains
	Keys         *KeySet
}

// NewOIDC returns an OIDC that fetches the provider's keys.
func NewOIDC(rule Rule, domains TrustDomains, from jwks.Fetcher) OIDC {
	remote := jwks.Remote{URI: rule.JWKSURI, Issuer: rule.Issuer}
	keys := &KeySet{&latest[*jwks.Set]{ask: func(ctx context.Context) (*jwks.Set, error) { return remote.Fetch(ctx, from) }}}
	return OIDC{Rule: rule, TrustDomains: domains, Keys: keys}
}

// Authenticate returns the service account of a token.
func (o OIDC) Authenticate(ctx context.Context, r Request) (identity.Peer, error) {
	t, err := parseToken(r.Token, o.Rule.Audiences, time.Now())
	if err != nil {
		return identity.Peer{}, err
	}
	if t.claims.Issuer != o.Rule.Issuer {
		return identity.Peer{}, fmt.Errorf("the token's issuer %.200q differs from the issuer in JWT_RULE", t.claims.Issuer)
	}
	namespace, name, err := account(t.claims.Subject)
	if err != nil {
		return identity.Peer{}, err
	}
	key, err := o.Keys.Key(ctx, t.keyID())
	switch {
	case err != nil:
		return identity.Peer{}, fmt.Errorf("%w: %s: %w", ErrUnavailable, o.Rule.Issuer, err)
	case key == nil || !t.verify(key):
		return identity.Peer{}, errors.New("the token's signature is wrong")
	}
	return identity.Peer{
		ID:    identity.ID{TrustDomain: o.TrustDomains.TrustDomain(), Namespace: namespace, ServiceAccount: name},
		Proof: identity.Token, Expires: t.claims.Expiry.Time(),
	}, nil
}
