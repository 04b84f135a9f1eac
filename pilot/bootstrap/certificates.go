package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	citadel "github.com/istiod-lite/istiod-lite/citadel/server"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/citadel/token"
	"github.com/istiod-lite/istiod-lite/pilot/facts/keysets"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// Certificates are the options of the certificate authority and of whom it issues certificates to.
type Certificates struct {
	Off      bool   // there is no CA, and others certify workloads: ENABLE_CA_SERVER=false
	StateDir string // of a self-signed CA and the key of tokens, without Kubernetes; empty: there is neither
	Cacerts  bool   // the Secret of a self-signed CA is called cacerts
	Folder   string // of a CA that is plugged in
	// MultiRoot: that CA may be replaced by one of another root at once, and proxies are sent the roots to trust:
	// ISTIO_MULTIROOT_MESH.
	MultiRoot bool

	Audiences []string // of tokens of Kubernetes
	// NodeAccounts may have certificates of the pods on their node: CA_TRUSTED_NODE_ACCOUNTS.
	NodeAccounts []NodeAccount
	RootsMap     string // name of the ConfigMap with the roots, in every namespace
	CRLMap       string // name of the ConfigMap with revocation lists, in every namespace

	TTL, MaxTTL time.Duration // of workloads' certificates
	RootTTL     time.Duration // of a self-signed root
	Grace       int           // percent of that in which it is replaced
	Interval    time.Duration // for which a step of its replacement must have been due

	ServerNames []string       // DNS names of this server beside those of its Service
	Gateways    []netip.Prefix // from which certificates that were forwarded in a header count
	Rule        string         // JWT_RULE: tokens of an OpenID provider; empty for none
	Signing     Signing
	Serving     ServingFiles // of a certificate of this server's that others issue
	MinTLS      uint16
}

// ServingFiles are the paths of a certificate of the server's that others issue.
type ServingFiles = authority.Files

// secure is what serves the secure port.
type secure struct {
	issuer    *ca.CA     // issues nothing where signers of Kubernetes do
	ra        *registrar // nil: such signers sign nothing
	anchors   *anchors
	authority *authority.Authority
	lease     *leader.Lease    // without which this server does not replace the root; nil: it may in any case
	issuers   *issuers         // of tokens of Kubernetes; nil: there are none
	publisher *trust.Publisher // of the roots; nil: there is no cluster, or no CA
	callers   authenticate.List
	grpc      *grpc.Server
}

// Findings returns what is wrong with the CA and with the roots of trust domains.
func (x *secure) Findings() []diag.Diagnostic {
	_, found := x.anchors.get()
	return append(x.authority.Findings(), found...)
}

// perIdentity and identityBurst bound how often one identity is issued a certificate.
const (
	perIdentity   rate.Limit = 10. / 60
	identityBurst            = 20
)

// certified reports whether the server has a CA, or is certified by others.
func (s *Server) certified() (bool, error) {
	o := s.o.Certificates
	if o.Off {
		return o.Serving != (ServingFiles{}) || o.Signing.Server != "", nil
	}
	plugged, err := store.ReadPlugged(o.Folder, time.Now())
	return plugged != nil || o.StateDir != "" || s.o.member(), err
}

// newSecure makes what serves the secure port; nil if the server has no certificate.
func (s *Server) newSecure(metrics *rpcMetrics) (*secure, error) {
	o := s.o.Certificates
	ok, err := s.certified()
	if !ok || err != nil {
		return nil, err
	}
	x := &secure{issuer: ca.New(ca.Options{TTL: o.TTL, MaxTTL: o.MaxTTL})}
	if x.anchors, err = s.newAnchors(); err != nil {
		return nil, err
	}
	if x.ra, err = s.newRegistrar(x.anchors); err != nil {
		return nil, err
	}
	options := authority.Options{
		CA: x.issuer, Anchors: x.trusted, Folder: o.Folder, MultiRoot: o.MultiRoot,
		Rotation: rotation.Options{Organization: s.o.Domain, Lifetime: o.RootTTL, GracePercent: o.Grace, MaxTTL: o.MaxTTL},
		Lead:     func() bool { return true }, Interval: o.Interval,
		Names: s.serverNames, Files: o.Serving, Now: time.Now, Logger: s.o.Logger.With("scope", "ca"), Registerer: s.metrics,
	}
	if x.ra != nil {
		x.ra.complete(&options)
	}
	if o.Off {
		options.Elsewhere, options.FilesVouch = true, true
	}
	if s.o.member() {
		if x.issuers, err = s.newIssuers(); err == nil && !o.Off {
			err = s.joinCluster(x, &options)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(o.Gateways) > 0 { // first, because a gateway's own certificate is not that of whom it speaks for
		x.callers = append(x.callers, authenticate.Forwarded{
			Gateways: o.Gateways, Trusts: s.trusts, Now: time.Now, Federated: func(domain string) bool { return x.anchors.federate(domain, s.trustDomain()) },
			Revokes: func() bool { return x.authority.Revoked().Len() > 0 }, Verify: x.verify, Vouches: s.vouches,
		})
	}
	x.callers = append(x.callers, authenticate.Certificates{Trusts: s.trusts, Vouches: s.vouches, Now: time.Now})
	if x.issuers != nil {
		x.callers = append(x.callers, authenticate.NewKubernetes(authenticate.KubernetesOptions{
			TrustDomain: s.trustDomain, Audiences: o.Audiences, Cluster: x.issuers.find, Now: time.Now, Logger: options.Logger, Limits: s.o.Limits,
		}))
	}
	if o.StateDir != "" {
		options.Store = &store.Kept{Store: store.Folder{Path: filepath.Join(o.StateDir, "ca")}, Lead: options.Lead, Now: time.Now}
		key, err := token.NewKey(o.StateDir)
		if err != nil {
			return nil, fmt.Errorf("the key of tokens: %w", err)
		}
		x.callers = append(x.callers, authenticate.OIDC{
			Rule: authenticate.Rule{Issuer: token.Issuer, Audiences: []string{token.Audience}}, TrustDomain: s.trustDomain, Now: time.Now,
			Keys: authenticate.NewKeySet(func(context.Context) ([]byte, error) { return key.JWKS() }, time.Now),
		})
	}
	if o.Rule != "" {
		rule, err := authenticate.ParseRule(o.Rule)
		if err != nil {
			return nil, err
		}
		fetcher, err := s.newFetcher()
		if err != nil {
			return nil, err
		}
		x.callers = append(x.callers, authenticate.OIDC{
			Rule: rule, TrustDomain: s.trustDomain, Now: time.Now,
			Keys: authenticate.NewKeySet(func(ctx context.Context) ([]byte, error) {
				ctx, cancel := context.WithTimeout(ctx, jwks.DefaultTimeout)
				defer cancel()
				uri := rule.JWKSURI
				if uri == "" {
					var err error
					if uri, err = keysets.Discover(ctx, fetcher.Get, rule.Issuer); err != nil {
						return nil, err
					}
				}
				return fetcher.Get(ctx, uri)
			}, time.Now),
		})
	}
	if x.authority, err = authority.New(options); err != nil {
		return nil, err
	}
	x.grpc = newGRPC(s.o, metrics, grpc.Creds(credentials.NewTLS(x.authority.TLS(&tls.Config{MinVersion: o.MinTLS}))))
	if o.Off {
		return x, nil
	}
	work := citadel.Options{
		Issuer: x.issuer, Authenticate: s.caller, PerIdentity: perIdentity, Burst: identityBurst,
		Registerer: s.metrics, Log: options.Logger, Impersonate: s.impersonate, Renew: s.renew, Limits: s.o.Limits,
	}
	if x.ra != nil && x.ra.o.Workloads {
		work.Issuer, work.AtOnce = x.ra, s.o.Limits.SignerWaiting
	}
	service, err := citadel.New(work)
	if err != nil {
		return nil, err
	}
	service.Register(x.grpc)
	return x, nil
}

// serverNames returns the DNS names and addresses by which proxies call this server.
func (s *Server) serverNames() []string {
	names := []string{"istiod." + s.o.Namespace + ".svc", "istiod-remote." + s.o.Namespace + ".svc", "istio-pilot." + s.o.Namespace + ".svc"}
	if s.o.Revision != "" && s.o.Revision != "default" {
		names = append(names, "istiod-"+s.o.Revision+"."+s.o.Namespace+".svc")
	}
	if s.o.Client == nil {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	for _, n := range append(s.o.Certificates.ServerNames, s.discoveryHost()) {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// discoveryHost returns the name or address by which the mesh configuration has proxies call; empty while there is
// none.
func (s *Server) discoveryHost() string {
	snap := s.world.Snapshot()
	if snap == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(snap.Mesh.GetDefaultConfig().GetDiscoveryAddress())
	if err != nil {
		return ""
	}
	return host
}

// trusted returns the roots of callers beside those of the CA.
func (x *secure) trusted() []*x509.Certificate {
	list := x.anchors.all()
	if x.ra != nil {
		list = append(list, x.ra.signerRoots()...)
	}
	var once []*x509.Certificate
	for _, c := range list {
		if !slices.ContainsFunc(once, c.Equal) {
			once = append(once, c)
		}
	}
	return once
}

// mesh returns the mesh configuration; nil while there is none.
func (s *Server) mesh() *mesh.Config {
	if snap := s.world.Snapshot(); snap != nil {
		return snap.Mesh
	}
	return nil
}

// trustDomain returns the mesh's own; empty while that is not known.
func (s *Server) trustDomain() string {
	if snap := s.world.Snapshot(); snap != nil {
		return snap.Mesh.GetTrustDomain()
	}
	return ""
}

// trusts reports whether identities of a trust domain are the mesh's.
func (s *Server) trusts(trustDomain string) bool {
	snap := s.world.Snapshot()
	return snap != nil && slices.Contains(snap.Mesh.TrustDomains(), trustDomain)
}

// caller returns who calls over gRPC. Over plaintext all that is known is an address.
func (s *Server) caller(ctx context.Context) (identity.Peer, error) {
	r := authenticate.FromContext(ctx)
	switch {
	case r.TLS == nil || s.secure == nil:
		return identity.Peer{Address: r.Address}, nil
	case s.world.Snapshot() == nil:
		return identity.Peer{Address: r.Address}, fmt.Errorf("%w: the mesh is not known yet", authenticate.ErrUnavailable)
	}
	return s.secure.callers.Authenticate(ctx, r)
}

// peer returns who opens a stream, or a gRPC status: over TLS everybody proves who they are.
func (s *Server) peer(ctx context.Context) (identity.Peer, error) {
	p, err := s.caller(ctx)
	switch {
	case errors.Is(err, authenticate.ErrUnavailable):
		return p, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		s.o.Logger.Debug("a stream is refused", "scope", "ads", "peer", p.Address.String(), "err", err)
		return p, status.Error(codes.Unauthenticated, "authentication failure: a client certificate of the mesh or a token is needed")
	}
	return p, nil
}
