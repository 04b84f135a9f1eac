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
}

// Issuer gives proxies their certificates.
type Issuer interface {
	// Issue returns a certificate with its chain, its key, and the roots to trust, as PEM, for a proxy of a namespace and
	// service account.
	Issue(ctx context.Context, namespace, account string) (chain, key, roots []byte, err error)
}

// Start starts a server at that host, on a free port. Without an issuer it signs certificates itself, by a CA of its own.
func Start(host string, issuer Issuer) (*Server, error) {
	if issuer == nil {
		own, err := newOwn()
		if err != nil {
			return nil, err
		}
		issuer = own
	}
	s := &Server{grpc: grpc.NewServer(), issuer: issuer}
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

// StreamSecrets answers requests of one proxy, which names itself in the first.
func (s *Server) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	var node *corev3.Node
	answered := ""
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if req.Node != nil {
			node = req.Node
		}
		if req.ErrorDetail != nil {
			return fmt.Errorf("%s rejects its secrets: %s", node.GetId(), req.ErrorDetail.GetMessage())
		}
		if req.ResponseNonce != "" && req.ResponseNonce == answered {
			continue // it has what it asked for
		}
		resp := &discoveryv3.DiscoveryResponse{VersionInfo: "1", TypeUrl: req.TypeUrl, Nonce: fmt.Sprint(req.ResourceNames)}
		for _, name := range req.ResourceNames {
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
		answered = resp.Nonce
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func (s *Server) secret(ctx context.Context, name string, node *corev3.Node) (*tlsv3.Secret, error) {
	field := func(name string) string { return node.GetMetadata().GetFields()[name].GetStringValue() }
	chain, key, roots, err := s.issuer.Issue(ctx, field("NAMESPACE"), field("SERVICE_ACCOUNT"))
	if err != nil {
		return nil, err
	}
	switch name {
	case "ROOTCA":
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(roots)}}}, nil
	case "default":
		return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(chain), PrivateKey: inline(key)}}}, nil
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
