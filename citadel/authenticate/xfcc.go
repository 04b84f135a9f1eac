package authenticate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

// Forwarded authenticates callers behind a gateway that has verified their certificates, by the header
// x-forwarded-client-cert. Any client in these ranges can impersonate any identity, so there are none unless the
// operator names them: TRUSTED_GATEWAY_CIDR. Not even this host is trusted by default.
//
// The header does not say which root verified a certificate. So a peer is federated if any federated root proves
// identities of its trust domain. While the CA has lists of revoked certificates, the header must contain the
// certificate itself, as Cert or Chain, and TrustDomains must accept it.
type Forwarded struct {
	Gateways     []netip.Prefix
	TrustDomains TrustDomains
}

// maxForwarded bounds the header in bytes.
const maxForwarded = 16 << 10

// forwardedFor is how long a forwarded certificate is accepted: the header does not say when it expires.
const forwardedFor = time.Hour

// Authenticate returns the identity in the header. There must be one certificate in it, with one URI.
func (f Forwarded) Authenticate(_ context.Context, r Request) (identity.Peer, error) {
	from := r.Address.Addr().Unmap()
	if r.TLS == nil || r.Forwarded == "" || !slices.ContainsFunc(f.Gateways, func(p netip.Prefix) bool { return p.Contains(from) }) {
		return identity.Peer{}, ErrNoCredential
	}
	header, err := parseForwarded(r.Forwarded)
	if err != nil {
		return identity.Peer{}, err
	}
	id, err := identity.Parse(header.uri)
	if err != nil {
		return identity.Peer{}, err
	}
	if !f.TrustDomains.Trusts(id.TrustDomain) {
		return identity.Peer{}, fmt.Errorf("the forwarded certificate's trust domain %s is not the mesh's", id.TrustDomain)
	}
	p := identity.Peer{ID: id, Proof: identity.Certificate,
		Expires: time.Now().Add(forwardedFor), Federated: f.TrustDomains.Federated(id.TrustDomain)}
	if f.TrustDomains.Revokes() {
		if p.Federated, err = f.unrevoked(header, id); err != nil {
			return identity.Peer{}, err
		}
	}
	return p, nil
}

// unrevoked returns an error unless the certificate in a header is of an identity and was not revoked. It reports
// whether only federated roots prove it.
func (f Forwarded) unrevoked(header forwarded, id identity.ID) (federated bool, err error) {
	if header.certificates == "" {
		return false, errors.New(
			"the CA has revocation lists, and the x-forwarded-client-cert header has no certificate to check: set Cert or Chain at the gateway")
	}
	text, err := url.PathUnescape(header.certificates)
	if err != nil {
		return false, errors.New("the certificate in the x-forwarded-client-cert header is malformed")
	}
	list, err := pki.ParseCertificates([]byte(text))
	if err != nil || len(list) == 0 {
		return false, errors.New("the certificate in the x-forwarded-client-cert header cannot be parsed")
	}
	if of, err := certificateID(list[0]); err != nil || of != id {
		return false, errors.New("the certificate in the x-forwarded-client-cert header is of another identity than its URI")
	}
	chains, err := f.TrustDomains.Chains(list)
	if err != nil {
		return false, fmt.Errorf("the certificate in the x-forwarded-client-cert header: %w", err)
	}
	return verifyTrust(f.TrustDomains, chains, id.TrustDomain)
}

// forwarded is what an x-forwarded-client-cert header says of the only certificate in it.
type forwarded struct {
	uri          string
	certificates string // URL-escaped PEM of the certificate and its issuers up to the root; may be empty
}

// parseForwarded parses an x-forwarded-client-cert header. Envoy's documentation of HTTP headers defines the format:
// semicolons separate fields of the form key=value, commas separate certificates, and values that contain one of these
// are quoted.
func parseForwarded(header string) (f forwarded, err error) {
	if len(header) > maxForwarded {
		return f, errors.New("the x-forwarded-client-cert header is too long")
	}
	var uris []string
	chained := false
	for rest := header; rest != ""; {
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return f, errors.New("the x-forwarded-client-cert header is malformed")
		}
		var value string
		if strings.HasPrefix(after, `"`) {
			end := closingQuote(after)
			if end < 0 {
				return f, errors.New("the x-forwarded-client-cert header has an open quote")
			}
			value, rest = after[1:end], after[end+1:]
		} else {
			end := strings.IndexAny(after, ";,")
			if end < 0 {
				end = len(after)
			}
			value, rest = after[:end], after[end:]
		}
		switch {
		case strings.EqualFold(key, "URI"):
			uris = append(uris, value)
		case strings.EqualFold(key, "Chain"):
			f.certificates, chained = value, true
		case strings.EqualFold(key, "Cert") && !chained:
			f.certificates = value
		}
		switch {
		case rest == "":
		case rest[0] == ';':
			rest = rest[1:]
		default: // a certificate of a proxy in front of the gateway, or text after a quote
			return f, errors.New("the x-forwarded-client-cert header has more than one certificate")
		}
	}
	if len(uris) != 1 {
		return f, fmt.Errorf("the x-forwarded-client-cert header has %d URIs: it must have one", len(uris))
	}
	f.uri = uris[0]
	return f, nil
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
