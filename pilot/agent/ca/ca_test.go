package ca

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	authv1 "istio.io/api/security/v1alpha1"

	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/upstream"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// issued is a self-signed certificate for servers and clients.
type issued struct{ chain, key []byte }

func issue(t *testing.T, name string, life time.Duration) issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must.Succeed(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	return issued{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})}
}

// server is a CA that records its requests.
type server struct {
	authv1.UnimplementedIstioCertificateServiceServer
	address string

	mu      sync.Mutex
	own     issued
	answer  []string
	tokens  []string
	headers []string
	signer  string
	life    int64
	client  []string // DNS names of client certificates
}

func (s *server) CreateCertificate(ctx context.Context, r *authv1.IstioCertificateRequest) (*authv1.IstioCertificateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	s.tokens, s.headers = md.Get("authorization"), md.Get("clusterid")
	s.signer, s.life, s.client = r.GetMetadata().GetFields()["CertSigner"].GetStringValue(), r.GetValidityDuration(), nil
	if p, _ := peer.FromContext(ctx); p != nil {
		if i, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(i.State.PeerCertificates) > 0 {
			s.client = i.State.PeerCertificates[0].DNSNames
		}
	}
	if len(s.tokens) == 0 && s.client == nil {
		return nil, status.Error(codes.Unauthenticated, "who are you?")
	}
	return &authv1.IstioCertificateResponse{CertChain: s.answer}, nil
}

// serve starts a CA until the test ends.
func serve(t *testing.T, plaintext bool) *server {
	t.Helper()
	s := &server{own: issue(t, "ca.mesh", time.Hour), answer: []string{"leaf", "root\n"}}
	var options []grpc.ServerOption
	if !plaintext {
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{
			ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				pair, err := tls.X509KeyPair(s.own.chain, s.own.key)
				return &pair, err
			},
		})))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	g := grpc.NewServer(options...)
	authv1.RegisterIstioCertificateServiceServer(g, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); serving.Wait() })
	s.address = l.Addr().String()
	return s
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	err := os.WriteFile(name+".new", text, 0o600)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	must.Succeed(t, err)
}

// connect returns a client whose upstream runs until the test ends.
func connect(t *testing.T, o upstream.Options, co Options) *Client {
	t.Helper()
	o.Poll = time.Millisecond
	u, err := upstream.New(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	co.Upstream = u
	c, err := New(co)
	must.Succeed(t, err)
	return c
}

func TestSign(t *testing.T) {
	s := serve(t, false)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write(t, file("root.pem"), s.own.chain)
	r := prometheus.NewRegistry()
	c := connect(t, upstream.Options{
		Address: s.address, ServerName: "ca.mesh", Roots: file("root.pem"), Token: file("token"), Certificate: file("cert.pem"),
		Key:     file("key.pem"),
		Headers: map[string]string{"ClusterID": "c1"},
	}, Options{CertSigner: "x/y", Registerer: r})

	sign := func() error { _, err := c.Sign(t.Context(), []byte("csr"), time.Minute); return err }
	if err := sign(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), file("token")) {
		t.Errorf("without a token: %v", err)
	}
	write(t, file("token"), []byte("one\n"))
	chain, err := c.Sign(t.Context(), []byte("csr"), time.Minute)
	if err != nil || strings.Join(chain, "|") != "leaf\n|root\n" {
		t.Fatalf("%q, %v", chain, err)
	}
	if s.tokens[0] != "Bearer one" || s.headers[0] != "c1" || s.signer != "x/y" || s.life != 60 || s.client != nil {
		t.Errorf("asked with %v, %v, %s, %d, %v", s.tokens, s.headers, s.signer, s.life, s.client)
	}
	write(t, file("token"), []byte("two"))
	if err := sign(); err != nil || s.tokens[0] != "Bearer two" {
		t.Errorf("a token that was replaced: %v, %v", s.tokens, err)
	}

	// New connections show a certificate that was provisioned later.
	own := issue(t, "vm.mesh", time.Hour)
	write(t, file("cert.pem"), own.chain)
	write(t, file("key.pem"), own.key)
	next := issue(t, "ca.mesh", time.Hour)
	write(t, file("root.pem"), append(bytes.Clone(next.chain), s.own.chain...))
	until(t, "a connection that shows the certificate", func() bool { return sign() == nil && len(s.client) == 1 && s.client[0] == "vm.mesh" })
	must.Succeed(t, os.Remove(file("token")))
	if err := sign(); err != nil || s.tokens != nil {
		t.Errorf("a certificate without a token: %v, %v", s.tokens, err)
	}

	// The server's root is replaced, and the file of roots some time later.
	s.mu.Lock()
	s.own = issue(t, "ca.mesh", time.Hour)
	s.mu.Unlock()
	write(t, file("root.pem"), next.chain)
	until(t, "a server that is not trusted", func() bool { return status.Code(sign()) == codes.Unavailable })
	write(t, file("root.pem"), s.own.chain)
	until(t, "the new root", func() bool { return sign() == nil })
	if n := testutil.ToFloat64(c.requests.WithLabelValues(requestType)); n < 6 {
		t.Errorf("%v requests are counted", n)
	}
	if testutil.ToFloat64(c.failed.WithLabelValues(requestType)) < 2 {
		t.Error("failures are not counted")
	}

	s.mu.Lock()
	s.answer = []string{"alone"}
	s.mu.Unlock()
	if err := sign(); err == nil || !strings.Contains(err.Error(), "1 certificates") {
		t.Errorf("a chain without a root: %v", err)
	}
}

func TestPlaintext(t *testing.T) {
	s := serve(t, true)
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, []byte("one"))
	c := connect(t, upstream.Options{Address: s.address, Plaintext: true, Token: token}, Options{})
	if _, err := c.Sign(t.Context(), []byte("csr"), time.Minute); err != nil || s.tokens[0] != "Bearer one" {
		t.Errorf("%v, %v", s.tokens, err)
	}
}

func TestRefused(t *testing.T) {
	for want, o := range map[string]upstream.Options{
		`address "istiod"`:     {Address: "istiod", Roots: upstream.System},
		"no roots":             {Address: "h:1"},
		"set together":         {Address: "h:1", Roots: upstream.System, Certificate: "c"},
		`address ":15012"`:     {Address: ":15012", Roots: upstream.System},
		"must be set together": {Address: "h:1", Roots: upstream.System, Key: "k"},
	} {
		if _, err := upstream.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a client of no server")
	}
}

// until waits for a condition. It fails only after a time that is far too long.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
