package bootstrap

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/rpc"
	"github.com/istiod-lite/istiod-lite/citadel/authenticate"
	"github.com/istiod-lite/istiod-lite/citadel/secureport"
	"github.com/istiod-lite/istiod-lite/citadel/trustdomain"
	"github.com/istiod-lite/istiod-lite/pilot/facts/bundles"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/leader"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
	"github.com/istiod-lite/istiod-lite/pilot/trust"
)

// Certificates configure the certificate authority and the authentication of clients.
type Certificates struct {
	secureport.Options
	Cacerts  bool   // the Secret of a self-signed CA is called cacerts
	RootsMap string // name of the ConfigMap with the roots, in every namespace
	CRLMap   string // name of the ConfigMap with revocation lists, in every namespace
	// TrustBundle publishes the roots in a ClusterTrustBundle, and not in ConfigMaps of more namespaces.
	TrustBundle bool
	MinTLS      uint16
}

// secure is the state of the secure port.
type secure struct {
	*secureport.Port
	publisher *trust.Publisher // publishes the roots; nil if there is no cluster or no CA
	rotates   *leader.Lease    // right to replace the root; nil if it is the Lease of the publisher, or needs none
	grpc      *grpc.Server
}

// newSecure returns the state of the secure port, or nil if the server has no certificate.
func (s *Server) newSecure(calls *rpc.Calls) (*secure, error) {
	o := s.o.Certificates
	if ok, err := o.Certified(s.o.member()); !ok || err != nil {
		return nil, err
	}
	x, b := &secure{}, bundles.New(s.fetcher, s.noticeRoots, s.o.Logger.With("scope", "ca"), s.o.Limits)
	s.components.Background("bundles of trust domains", b.Run)
	parts := secureport.Parts{
		NoWatch: s.o.NoWatch, Mesh: s.world, Bundles: b, Workloads: ingest.Workloads{World: s.world, Sources: s.from}, Fetcher: s.fetcher,
		ClusterID: s.o.ClusterID, ClusterAliases: s.o.ClusterAliases, Namespace: s.o.Namespace, Revision: s.o.Revision, Domain: s.o.Domain,
		Local: s.o.Client == nil, Compliance: s.o.Compliance, Limits: s.o.Limits, Logger: s.o.Logger, Registerer: s.metrics,
	}
	var err error
	if s.o.member() {
		parts.Client = s.o.Client
		if parts.Clusters, err = ingest.NewPerServer(s.from, tokenCluster); err != nil {
			return nil, err
		}
		if !o.Off {
			if err = s.joinCluster(x, &parts); err != nil {
				return nil, err
			}
		}
	}
	if x.Port, err = secureport.New(o.Options, parts); err != nil {
		return nil, err
	}
	config := x.Authority.TLS(s.o.Compliance.Limit(&tls.Config{MinVersion: o.MinTLS}))
	x.grpc = ports.NewGRPC(s.o.Limits, s.o.keepalive(), calls, grpc.Creds(credentials.NewTLS(config)))
	x.Register(x.grpc)
	return x, nil
}

// tokenCluster returns the cluster of an API server whose tokens are accepted.
func tokenCluster(c *rest.Config) (authenticate.Cluster, error) {
	return authenticate.NewAPIServer(c)
}

// peer identifies the peer of a stream. It fails with a gRPC status.
func (s *Server) peer(ctx context.Context) (identity.Peer, error) {
	if s.secure == nil {
		return identity.Peer{Address: authenticate.FromContext(ctx).Address}, nil
	}
	return s.secure.Peer(ctx)
}

// sentRoots returns the roots that proxies trust under a mesh configuration: see trustdomain.Domains.Sent.
func (s *Server) sentRoots(m *mesh.Config) []string {
	if s.secure == nil {
		return trustdomain.New(trustdomain.Options{}).Sent(m)
	}
	return s.secure.TrustDomains.Sent(m)
}

// noticeRoots commits a change of the roots that proxies trust.
func (s *Server) noticeRoots() {
	if s.o.Certificates.MultiRoot {
		s.throttle.Add([]kinds.Change{{Key: kinds.Key{Kind: kinds.Roots}}})
	}
}
