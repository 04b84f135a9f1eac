package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/load"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// guarded answers proxies that bring a token with nothing, and no others.
type guarded struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	token   string
	refused atomic.Int64
}

func (g *guarded) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	in, _ := metadata.FromIncomingContext(s.Context())
	if got := in.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+g.token {
		g.refused.Add(1)
		return status.Error(codes.Unauthenticated, "who are you")
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		if r.ResponseNonce != "" {
			continue
		}
		if err := s.Send(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: r.TypeUrl, Nonce: "n", SystemVersionInfo: "v"}); err != nil {
			return err
		}
	}
}

// certify writes a certificate, for 127.0.0.1, and its key to files.
func certify(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must.Succeed(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must.Succeed(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		must.Succeed(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

// TestLoadIsAuthenticated: with TLS proxies trust the CA of --ca, present a certificate, and present the token as it is
// when a stream is opened.
func TestLoadIsAuthenticated(t *testing.T) {
	certificate, key := certify(t)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	must.Succeed(t, err)
	text, err := os.ReadFile(certificate)
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	g := &guarded{token: "new"}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12})))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, g)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-served })

	token := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(token, []byte("old\n"), 0o600))
	args := []string{"load", "--address", l.Addr().String(), "--proxies", "3", "--duration", "0s", "--timeout", "1m", "-o", "json",
		"--tls", "--token-file", token}
	trusting := append(args, "--ca", certificate, "--cert", certificate, "--key", key)
	var out bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(context.WithoutCancel(t.Context()), trusting, nil, &out, io.Discard)
	}()
	for deadline := time.Now().Add(time.Minute); g.refused.Load() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams were refused, want 3", g.refused.Load())
		}
	}
	must.Succeed(t, os.WriteFile(token, []byte("new\n"), 0o600))
	if code := <-ended; code != 0 {
		t.Fatalf("code %d: %s", code, out.String())
	}
	var r load.Report
	must.Succeed(t, json.Unmarshal(out.Bytes(), &r))
	if r.Full != 3 || r.Refused < 3 || len(r.Types) != 2 || r.Types[0].Type != "CDS" || r.Types[0].Responses != 3 ||
		r.Types[0].Answer.Count != 3 || r.Bytes == 0 {
		t.Errorf("got %+v", r)
	}

	if code := run(t.Context(), append(args, "--timeout", "300ms"), nil, io.Discard, io.Discard); code != 1 {
		t.Errorf("an unknown authority is trusted: code %d", code)
	}
}
