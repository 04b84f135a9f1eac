package authenticate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Forwarded authenticates callers behind a gateway that has verified their certificates, by the header
// x-forwarded-client-cert. Whoever can connect from one of the ranges can be anybody, so there are none unless the
// operator names them: TRUSTED_GATEWAY_CIDR. Not even this host is trusted without.
type Forwarded struct {
	Gateways []netip.Prefix
	Trusts   func(trustDomain string) bool
	// Federated reports whether roots that count for a trust domain may vouch for aliases alone: see identity.Peer. The
	// header does not say by which root a certificate was verified. Nil: none.
	Federated func(trustDomain string) bool
	Now       func() time.Time
}

// forwardedFor is how long a forwarded certificate counts: the header does not say when it expires.
const forwardedFor = time.Hour

// Authenticate returns the identity in the header. There must be one certificate in it, with one URI.
func (f Forwarded) Authenticate(_ context.Context, r Request) (identity.Peer, error) {
	from := r.Address.Addr().Unmap()
	if r.TLS == nil || r.Forwarded == "" || !slices.ContainsFunc(f.Gateways, func(p netip.Prefix) bool { return p.Contains(from) }) {
		return identity.Peer{}, ErrNoCredential
	}
	uri, err := forwardedURI(r.Forwarded)
	if err != nil {
		return identity.Peer{}, err
	}
	id, err := identity.Parse(uri)
	if err != nil {
		return identity.Peer{}, err
	}
	if !f.Trusts(id.TrustDomain) {
		return identity.Peer{}, fmt.Errorf("the forwarded certificate's trust domain %s is not the mesh's", id.TrustDomain)
	}
	p := identity.Peer{ID: id, Proof: identity.Certificate, Expires: f.Now().Add(forwardedFor)}
	p.Federated = f.Federated != nil && f.Federated(id.TrustDomain)
	return p, nil
}

// forwardedURI returns the only URI of the only certificate in an x-forwarded-client-cert header. Its format is in
// Envoy's documentation of HTTP headers: fields key=value between semicolons, certificates between commas, values in
// quotes if they have one of these.
func forwardedURI(header string) (string, error) {
	if len(header) > maxToken {
		return "", errors.New("the x-forwarded-client-cert header is too long")
	}
	var uris []string
	for rest := header; rest != ""; {
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return "", errors.New("the x-forwarded-client-cert header is malformed")
		}
		var value string
		if strings.HasPrefix(after, `"`) {
			end := closingQuote(after)
			if end < 0 {
				return "", errors.New("the x-forwarded-client-cert header has an open quote")
			}
			value, rest = after[1:end], after[end+1:]
		} else {
			end := strings.IndexAny(after, ";,")
			if end < 0 {
				end = len(after)
			}
			value, rest = after[:end], after[end:]
		}
		if strings.EqualFold(key, "URI") {
			uris = append(uris, value)
		}
		switch {
		case rest == "":
		case rest[0] == ';':
			rest = rest[1:]
		default: // another certificate, of a proxy before the gateway, or text after a quote
			return "", errors.New("the x-forwarded-client-cert header has more than one certificate")
		}
	}
	if len(uris) != 1 {
		return "", fmt.Errorf("the x-forwarded-client-cert header has %d URIs: it must have one", len(uris))
	}
	return uris[0], nil
}

// closingQuote returns the index of the quote that closes a text which begins with one; -1 if there is none.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
