package sds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// lifetime of what is issued: longer than any test.
const lifetime = time.Hour

// Server is a running secret discovery service.
type Server struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer

	// Address is where it listens.
	Address string

	grpc   *grpc.Server
	issuer Issuer

	mu      sync.Mutex
	renewed chan struct{} // closed by Renew
	issued  map[account]Identity
}

type account struct{ namespace, name string }

// Identity is what an Issuer issues to a proxy, as PEM.
type Identity struct{ Chain, Key, Roots []byte }

// Issuer issues the certificates of proxies.
type Issuer interface {
	// Issue returns a certificate with its chain, its key, and the roots to trust, as PEM, for a proxy of a namespace
	// and service account.
	Issue(ctx context.Context, namespace, account string) (chain, key, roots []byte, err error)
}

// Start starts a server at that host, on a free port. Without an issuer it signs certificates itself, by a CA of its
// own.
func Start(host string, issuer Issuer) (*Server, error) {
	if issuer == nil {
		own, err := newOwn()
		if err != nil {
			return nil, err
		}
		issuer = own
	}
	s := &Server{grpc: grpc.NewServer(), issuer: issuer, renewed: make(chan struct{}), issued: map[account]Identity{}}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for secrets: %w", err)
	}
	s.Address = l.Addr().String()
	secretv3.RegisterSecretDiscoveryServiceServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(l) }()
	return s, nil
}

// own is a CA of the tests.
type own struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

// NewIssuer returns an Issuer with a CA of its own.
func NewIssuer() (Issuer, error) { return newOwn() }

func newOwn() (*own, error) {
	s := &own{}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make the root's key: %w", err)
	}
	root := template("root")
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, root, root, s.key.Public(), s.key)
	if err != nil {
		return nil, fmt.Errorf("make the root: %w", err)
	}
	if s.root, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("read the root: %w", err)
	}
	return s, nil
}

// Stop ends it.
func (s *Server) Stop() { s.grpc.Stop() }

// Renew sends all proxies new certificates, and the roots that come with them.
func (s *Server) Renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.renewed)
	s.renewed = make(chan struct{})
	clear(s.issued)
}

// Identity returns what the proxies of a namespace and service account have, and has it issued first where none has
// any.
func (s *Server) Identity(ctx context.Context, namespace, name string) (Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, ok := s.issued[account{namespace, name}]; ok {
		return has, nil
	}
	var i Identity
	var err error
	if i.Chain, i.Key, i.Roots, err = s.issuer.Issue(ctx, namespace, name); err != nil {
		return Identity{}, err
	}
	s.issued[account{namespace, name}] = i
	return i, nil
}

// renewal returns what the next Renew closes.
func (s *Server) renewal() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

// StreamSecrets answers requests of one proxy, which names itself in the first.
func (s *Server) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	requests, failed := make(chan *discoveryv3.DiscoveryRequest), make(chan error, 1)
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- req:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	var node *corev3.Node
	var subscribed *discoveryv3.DiscoveryRequest
	version := 0
	renewed := s.renewal()
	for {
		select {
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-renewed:
			renewed = s.renewal()
		case req := <-requests:
			if req.Node != nil {
				node = req.Node
			}
			if req.ErrorDetail != nil {
				return fmt.Errorf("%s rejects its secrets: %s", node.GetId(), req.ErrorDetail.GetMessage())
			}
			has := req.ResponseNonce != "" && (subscribed == nil || slices.Equal(req.ResourceNames, subscribed.ResourceNames))
			if subscribed = req; has {
				continue // it acknowledges what it was sent
			}
		}
		if subscribed == nil {
			continue
		}
		version++
		resp := &discoveryv3.DiscoveryResponse{VersionInfo: strconv.Itoa(version), TypeUrl: subscribed.TypeUrl, Nonce: strconv.Itoa(version)}
		for _, name := range subscribed.ResourceNames {
			secret, err := s.secret(stream.Context(), name, node)
			if err != nil {
				return err
			}
			encoded, err := anypb.New(secret)
			if err != nil {
				return fmt.Errorf("encode a secret: %w", err)
			}
			resp.Resources = append(resp.Resources, encoded)
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func (s *Server) secret(ctx context.Context, name string, node *corev3.Node) (*tlsv3.Secret, error) {
	field := func(name string) string { return node.GetMetadata().GetFields()[name].GetStringValue() }
	id, err := s.Identity(ctx, field("NAMESPACE"), field("SERVICE_ACCOUNT"))
	if err != nil {
		return nil, err
	}
	switch name {
	case "ROOTCA":
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(id.Roots)}}}, nil
	case "default":
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(id.Chain), PrivateKey: inline(id.Key)}}}, nil
	}
	return nil, fmt.Errorf("no agent has a secret %q", name)
}

// Issue implements Issuer.
func (s *own) Issue(_ context.Context, namespace, account string) (chain, key, roots []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a key: %w", err)
	}
	id := &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/" + account}
	leaf := template(id.Path)
	leaf.URIs, leaf.KeyUsage = []*url.URL{id}, x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.root, private.Public(), s.key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("sign %s: %w", id, err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	root := certificate(s.root.Raw)
	return append(certificate(der), root...), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), root, nil
}

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(lifetime)}
}

func certificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
