package authenticate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/istiod-lite/istiod-lite/api/identity"
)

// Errors of an Authenticator. Any other error means that the credential is wrong.
var (
	ErrNoCredential = errors.New("the caller presents no such credential")
	ErrUnavailable  = errors.New("the caller cannot be authenticated now") // a later attempt may succeed
)

// Request holds the credentials of a caller. Only the certificates in TLS have been verified.
type Request struct {
	Address   netip.AddrPort
	TLS       *tls.ConnectionState // nil over plaintext
	Token     string               // bearer token; empty over plaintext, where others may have read it
	Cluster   string               // ID of the cluster that issued Token, as the caller claims
	Forwarded string               // value of the header x-forwarded-client-cert
}

// FromContext returns the Request of a gRPC call.
func FromContext(ctx context.Context) Request {
	var r Request
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*net.TCPAddr); ok {
			r.Address = a.AddrPort()
		}
		if i, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &i.State
		}
	}
	if r.TLS == nil {
		return r
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, h := range md.Get("authorization") {
		if scheme, token, ok := strings.Cut(h, " "); ok && strings.EqualFold(scheme, "Bearer") {
			r.Token = token
			break
		}
	}
	r.Cluster = first(md.Get("clusterid"))
	r.Forwarded = strings.Join(md.Get("x-forwarded-client-cert"), ",") // repeated headers are one list, as in HTTP
	return r
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// TrustDomains decides which roots prove identities of which trust domains.
type TrustDomains interface {
	// TrustDomain returns the mesh's own trust domain, which is no alias; "" while there is no mesh configuration.
	TrustDomain() string
	// Trusts reports whether a trust domain is the mesh's own or one of its aliases.
	Trusts(trustDomain string) bool
	// VerifyTrust returns an error unless a verified chain, from the leaf to its root, proves identities of a trust
	// domain. It reports whether the root is federated: see identity.Peer.
	VerifyTrust(chain []*x509.Certificate, trustDomain string) (federated bool, err error)
	// Chains returns the chains of a client certificate, which is the first of the certificates, to trusted roots.
	Chains(certificates []*x509.Certificate) ([][]*x509.Certificate, error)
	// Federated reports whether a federated root proves identities of a trust domain.
	Federated(trustDomain string) bool
	// Revokes reports whether the CA has lists of revoked certificates.
	Revokes() bool
}

// Authenticator authenticates callers by one kind of credential. It returns ErrNoCredential if the caller presents none
// of that kind.
type Authenticator interface {
	Authenticate(ctx context.Context, r Request) (identity.Peer, error)
}

// List is a sequence of authenticators. The first that accepts a credential decides.
type List []Authenticator

// Authenticate returns the peer that proved an identity. Its error is ErrNoCredential if the caller presents nothing,
// and ErrUnavailable if any authenticator is unavailable and no other succeeds.
func (l List) Authenticate(ctx context.Context, r Request) (identity.Peer, error) {
	var problems []error
	for _, a := range l {
		p, err := a.Authenticate(ctx, r)
		switch {
		case err == nil && p.Proved():
			p.Address = r.Address
			return p, nil
		case err == nil:
			problems = append(problems, errors.New("the credential proves no identity"))
		case !errors.Is(err, ErrNoCredential):
			problems = append(problems, err)
		}
	}
	if problems == nil {
		return identity.Peer{Address: r.Address}, ErrNoCredential
	}
	return identity.Peer{Address: r.Address}, errors.Join(problems...)
}
