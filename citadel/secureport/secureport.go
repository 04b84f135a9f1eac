package secureport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/dynamic"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/authority"
	"github.com/istiod-lite/istiod-lite/citadel/ca"
	"github.com/istiod-lite/istiod-lite/citadel/ra"
	"github.com/istiod-lite/istiod-lite/citadel/rotation"
	"github.com/istiod-lite/istiod-lite/citadel/server"
	"github.com/istiod-lite/istiod-lite/citadel/store"
	"github.com/istiod-lite/istiod-lite/citadel/token"
	"github.com/istiod-lite/istiod-lite/citadel/trustdomain"
)

// perIdentity and identityBurst limit how often a certificate is issued to one identity.
const (
	perIdentity   rate.Limit = 10. / 60
	identityBurst            = 20
)

// Port holds the parts of the secure port. Safe for concurrent use.
type Port struct {
	Authority    *authority.Authority
	TrustDomains *trustdomain.Domains
	Client       *authority.Client // connects to other servers of the control plane

	parts       Parts
	serverNames []string
	callers     authenticate.List
	service     *server.Server // nil if the server issues no certificates
	logger      *slog.Logger
}

// New returns the Port of a server for which Certified is true. Its Authority is not loaded yet.
func New(o Options, parts Parts) (*Port, error) {
	signs, err := o.signs(parts.Client != nil)
	if err != nil {
		return nil, err
	}
	issuer, logger := ca.New(ca.Options{TTL: o.TTL, MaxTTL: o.MaxTTL}), parts.Logger.With("scope", "ca")
	p := &Port{parts: parts, serverNames: o.ServerNames, logger: logger, TrustDomains: trustdomain.New(trustdomain.Options{
		Mesh: parts.Mesh, Bundles: parts.Bundles, Issuer: issuer, Signers: o.Signing.byDefault(), SignerRoots: o.Signing.Roots,
	})}
	options := authority.Options{
		CA: issuer, Anchors: p.TrustDomains.Anchors, Folder: o.Folder,
		MultiRoot: o.MultiRoot, Store: parts.Store, Lease: parts.Lease, Interval: o.Interval,
		Rotation:  rotation.Options{Organization: parts.Domain, Lifetime: o.RootTTL, GracePercent: o.Grace, MaxTTL: o.MaxTTL},
		Elsewhere: o.Off || o.Signing.Workloads, FilesVouch: o.Off,
		Names: p.names, Files: o.Serving, NoWatch: parts.NoWatch, Logger: logger, Registerer: parts.Registerer,
	}
	work := server.Options{
		Issuer: issuer, Authenticate: p.Caller, PerIdentity: perIdentity, Burst: identityBurst, Registerer: parts.Registerer, Log: logger,
		NodeAccounts: o.NodeAccounts, Workloads: parts.Workloads, TrustDomains: p.TrustDomains, Limits: parts.Limits,
	}
	if signs {
		client, err := dynamic.NewForConfig(parts.Client)
		if err != nil {
			return nil, fmt.Errorf("client of certificate requests: %w", err)
		}
		signers := ra.New(ra.Options{
			Client: client, Signer: o.Signing.Default, Domain: o.Signing.Domain, ServerSigner: o.Signing.Server, TTL: o.TTL, MaxTTL: o.MaxTTL,
			Roots: p.TrustDomains.OfSigner, Logger: logger,
		})
		if o.Signing.Server != "" {
			options.Sign = signers.IssueServer
		}
		if o.Signing.Workloads {
			work.Issuer, work.AtOnce = signers, parts.Limits.SignerWaiting
		}
	}
	if o.StateDir != "" {
		options.Store = &store.Kept{Store: store.Folder{Path: filepath.Join(o.StateDir, "ca")}, Lease: parts.Lease}
	}
	if p.callers, err = p.authenticators(o); err != nil {
		return nil, err
	}
	p.Authority = authority.New(options)
	p.TrustDomains.Authority = p.Authority
	client := authority.ClientOptions{ID: p.id, Server: ServiceName(parts.Revision) + "." + parts.Namespace + ".svc",
		Compliance: parts.Compliance}
	if !o.Off {
		p.service, client.Issuer = server.New(work), work.Issuer
	}
	p.Client = p.Authority.Client(client)
	return p, nil
}

// id returns the identity of the server as a workload. Its trust domain is empty while there is no mesh configuration.
func (p *Port) id() identity.ID {
	id := identity.ID{Namespace: p.parts.Namespace, ServiceAccount: ServiceName(p.parts.Revision)}
	if m := p.parts.Mesh.Mesh(); m != nil {
		id.TrustDomain = m.GetTrustDomain()
	}
	return id
}

// authenticators returns the authenticators of callers in order. The first that accepts a credential decides.
func (p *Port) authenticators(o Options) (list authenticate.List, err error) {
	domains := p.TrustDomains
	if len(o.Gateways) > 0 { // first, because a gateway's own certificate is not the certificate that it forwards
		list = append(list, authenticate.Forwarded{Gateways: o.Gateways, TrustDomains: domains})
	}
	list = append(list, authenticate.Certificates{TrustDomains: domains})
	if p.parts.Clusters != nil {
		list = append(list, authenticate.NewKubernetes(authenticate.KubernetesOptions{
			TrustDomains: domains, Audiences: o.Audiences, Clusters: p.parts.Clusters, Pods: p.parts.Workloads,
			ClusterID: p.parts.ClusterID, ClusterAliases: p.parts.ClusterAliases, Logger: p.logger, Limits: p.parts.Limits,
		}))
	}
	if o.StateDir != "" {
		key, err := token.NewKey(o.StateDir)
		if err != nil {
			return nil, fmt.Errorf("the key of tokens: %w", err)
		}
		list = append(list, authenticate.OIDC{
			Rule: authenticate.Rule{Issuer: token.Issuer, Audiences: []string{token.Audience}}, TrustDomains: domains,
			Keys: authenticate.NewKeySet(func(context.Context) ([]byte, error) { return key.JWKS() }),
		})
	}
	if o.Rule != "" {
		rule, err := authenticate.ParseRule(o.Rule)
		if err != nil {
			return nil, err
		}
		list = append(list, authenticate.NewOIDC(rule, domains, p.parts.Fetcher))
	}
	return list, nil
}

// Register registers the service that issues certificates at a gRPC server, if there is one.
func (p *Port) Register(r grpc.ServiceRegistrar) {
	if p.service != nil {
		p.service.Register(r)
	}
}

// Findings returns the findings of the CA, of the server's own certificate, and of roots in the mesh configuration.
func (p *Port) Findings() []diag.Diagnostic {
	return append(p.Authority.Findings(), p.TrustDomains.Findings()...)
}

// Authenticate returns the peer that proved an identity by a request.
func (p *Port) Authenticate(ctx context.Context, r authenticate.Request) (identity.Peer, error) {
	if p.parts.Mesh.Mesh() == nil {
		return identity.Peer{Address: r.Address}, fmt.Errorf("%w: the mesh is not known yet", authenticate.ErrUnavailable)
	}
	return p.callers.Authenticate(ctx, r)
}

// Bearer returns the peer that proved an identity by a bearer token over HTTP.
func (p *Port) Bearer(ctx context.Context, address netip.AddrPort, token string) (identity.Peer, error) {
	return p.Authenticate(ctx, authenticate.Request{Address: address, Token: token})
}

// Caller returns the caller of a gRPC method. Over plaintext only its address is known.
func (p *Port) Caller(ctx context.Context) (identity.Peer, error) {
	r := authenticate.FromContext(ctx)
	if r.TLS == nil {
		return identity.Peer{Address: r.Address}, nil
	}
	return p.Authenticate(ctx, r)
}

// Peer returns the peer that opens a stream, or a gRPC status. Over TLS every peer must prove its identity.
func (p *Port) Peer(ctx context.Context) (identity.Peer, error) {
	peer, err := p.Caller(ctx)
	switch {
	case errors.Is(err, authenticate.ErrUnavailable):
		return peer, status.Error(codes.Unavailable, err.Error())
	case err != nil:
		p.parts.Logger.Debug("failed to authenticate stream", "scope", "ads", "peer", peer.Address.String(), "err", err)
		return peer, status.Error(codes.Unauthenticated, "authentication failure: a client certificate of the mesh or a token is needed")
	}
	return peer, nil
}
