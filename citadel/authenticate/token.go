package authenticate

import (
	"crypto/fips140"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Bounds of tokens. A service account's token has about 1.2 kB.
const (
	maxToken  = 8 << 10
	clockSkew = time.Minute // allowed difference between the issuer's clock and ours
)

// algorithms returns the accepted signature algorithms. All of them use a private key: with a shared key or the
// algorithm none, anyone who knows the public key could forge tokens.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512,
		jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512}
}

// claims are the claims that are read from a token. They are unproven until verify succeeds.
type claims struct {
	jwt.Claims
	Kubernetes struct {
		Pod  named `json:"pod"`
		Node named `json:"node"`
	} `json:"kubernetes.io"`
}

type named struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// token is a token whose form and time are right. Its signature has not been verified.
type token struct {
	signed *jwt.JSONWebToken
	claims claims
}

// parseToken returns a token for one of some audiences. It checks form, size, algorithm, audience and time, so that a
// token that cannot be valid costs neither a public-key operation nor a request to an issuer or API server.
func parseToken(text string, audiences []string, now time.Time) (*token, error) {
	switch {
	case text == "":
		return nil, ErrNoCredential
	case len(text) > maxToken:
		return nil, fmt.Errorf("the token has %d bytes, and may have %d", len(text), maxToken)
	case strings.Count(text, ".") != 2:
		return nil, errors.New("the token is no signed JWT")
	}
	for part := range strings.SplitSeq(text, ".") {
		bytes, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil || base64.RawURLEncoding.EncodeToString(bytes) != part { // otherwise one token would have several texts
			return nil, errors.New("the token's base64 is malformed")
		}
	}
	var (
		signed *jwt.JSONWebToken
		err    error
	)
	// go-jose computes the SHA-1 thumbprint of a certificate in the header, which panics in Go's mode fips140=only.
	// Keys and certificates of a header are not used.
	fips140.WithoutEnforcement(func() { signed, err = jwt.ParseSigned(text, algorithms()) })
	if err != nil {
		return nil, errors.New("the token is malformed, or has an algorithm that is not accepted")
	}
	t := &token{signed: signed}
	if err := signed.UnsafeClaimsWithoutVerification(&t.claims); err != nil {
		return nil, errors.New("the token's claims are malformed")
	}
	c := &t.claims
	switch {
	case c.Expiry == nil:
		return nil, errors.New("the token never expires")
	case now.After(c.Expiry.Time().Add(clockSkew)):
		return nil, fmt.Errorf("the token expired at %s", c.Expiry.Time().UTC().Format(time.RFC3339))
	case c.NotBefore != nil && now.Add(clockSkew).Before(c.NotBefore.Time()):
		return nil, fmt.Errorf("the token is valid from %s", c.NotBefore.Time().UTC().Format(time.RFC3339))
	case c.IssuedAt != nil && now.Add(clockSkew).Before(c.IssuedAt.Time()):
		return nil, fmt.Errorf("the token was issued in the future, at %s", c.IssuedAt.Time().UTC().Format(time.RFC3339))
	case !slices.ContainsFunc(audiences, c.Audience.Contains):
		return nil, fmt.Errorf("the token is not for any of %v", audiences)
	}
	return t, nil
}

// signedPart returns a token's text without the signature.
func signedPart(text string) string { return text[:strings.LastIndexByte(text, '.')] }

// keyID returns the ID of the key that the token names.
func (t *token) keyID() string { return t.signed.Headers[0].KeyID }

// verify reports whether a key signed the token.
func (t *token) verify(k *jose.JSONWebKey) bool {
	var again claims
	return t.signed.Claims(k.Key, &again) == nil
}

// account returns the namespace and the service account of a subject system:serviceaccount:<namespace>:<name>.
func account(subject string) (namespace, name string, err error) {
	part := strings.Split(subject, ":")
	if len(part) != 4 || part[0] != "system" || part[1] != "serviceaccount" || part[2] == "" || part[3] == "" {
		return "", "", fmt.Errorf("%.200q is no service account", subject)
	}
	return part[2], part[3], nil
}
