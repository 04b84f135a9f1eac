package xds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
	"github.com/istiod-lite/istiod-lite/pilot/xds/xdstest"
)

// certificate returns a certificate with some URIs that is signed by itself.
func certificate(t *testing.T, uris ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"server"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestPeersAreAuthenticated shows over real TLS that the identity of a stream's peer comes from its verified certificate,
// and that a proxy of another namespace is refused.
func TestPeersAreAuthenticated(t *testing.T) {
	web := identity.ID{TrustDomain: "cluster.local", Namespace: "a", ServiceAccount: "web"}
	for _, c := range []struct {
		name string
		uris []string // of the client's certificate; nil: it has none
		node string
		want identity.ID
		code codes.Code
	}{
		{"no certificate", nil, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", identity.ID{}, codes.OK},
		{"a workload", []string{web.String()}, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", web, codes.OK},
		{"another namespace", []string{web.String()}, "sidecar~10.1.1.1~web-0.b~b.svc.cluster.local", identity.ID{}, codes.PermissionDenied},
		{"two identities", []string{web.String(), "spiffe://cluster.local/ns/b/sa/web"}, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", identity.ID{}, codes.OK},
		{"no workload", []string{"spiffe://cluster.local/other"}, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", identity.ID{}, codes.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			connections := make(clients, 1)
			server, client := certificate(t), tls.Certificate{}
			pool := x509.NewCertPool()
			pool.AddCert(server.Leaf)
			config := &tls.Config{RootCAs: pool, ServerName: "server"}
			if c.uris != nil {
				client = certificate(t, c.uris...)
				pool.AddCert(client.Leaf)
				config.Certificates = []tls.Certificate{client}
			}
			translator := xdstest.NewTranslator()
			s := New(Options{Translator: translator, Connections: connections})
			s.Publish(translator.Publish(true))
			g := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec()), grpc.Creds(credentials.NewTLS(&tls.Config{
				Certificates: []tls.Certificate{server}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven,
			})))
			s.Register(g)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = g.Serve(listener) }() //nolint:forbidigo // a server of the test
			t.Cleanup(g.Stop)
			conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: c.node}}); err != nil {
				t.Fatal(err)
			}
			if c.code != codes.OK {
				if _, err := stream.Recv(); status.Code(err) != c.code {
					t.Fatalf("%v, want %v", err, c.code)
				}
				return
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
			got := <-connections
			if got.Peer.ID != c.want || got.Peer.Proved() != (c.want != identity.ID{}) || !got.Peer.OnHost() {
				t.Errorf("%#v", got.Peer)
			}
		})
	}
}

// clients are the streams that a server reports.
type clients chan Client

func (c clients) Connected(_ context.Context, client Client) error {
	c <- client
	return nil
}
func (clients) Disconnected(Client)         {}
func (clients) Health(Client, bool, string) {}
