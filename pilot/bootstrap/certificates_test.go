package bootstrap

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authv1 "istio.io/api/security/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/citadel/secureport"
	"github.com/istiod-lite/istiod-lite/citadel/token"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// certificateOptions are the options of a server that keeps a CA of its own.
func certificateOptions(t *testing.T) Options {
	t.Helper()
	o := testOptions(t)
	o.Certificates = Certificates{MinTLS: tls.VersionTLS12, Options: secureport.Options{
		StateDir: filepath.Join(t.TempDir(), "state"), Folder: filepath.Join(t.TempDir(), "cacerts"),
		TTL: time.Hour, MaxTTL: 24 * time.Hour, RootTTL: 365 * 24 * time.Hour, Grace: 20, Interval: time.Hour,
	}}
	return o
}

// rootsOf returns the roots of a server's CA, as an operator would read them.
func rootsOf(t *testing.T, o Options) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(o.Certificates.StateDir, "ca", "ca", "root-cert.pem"))
	must.Succeed(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("no roots")
	}
	return pool
}

func dialSecure(t *testing.T, address string, roots *x509.CertPool, own ...tls.Certificate) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: roots, ServerName: "istiod.istio-system.svc", Certificates: own,
	})))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// issued asks for a certificate, as a workload does.
func issued(ctx context.Context, t *testing.T, conn *grpc.ClientConn) (tls.Certificate, error) {
	t.Helper()
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	a, err := authv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &authv1.IstioCertificateRequest{Csr: requestOf(t, key)})
	if err != nil {
		return tls.Certificate{}, err
	}
	b, _ := pem.Decode([]byte(a.CertChain[0]))
	leaf, err := x509.ParseCertificate(b.Bytes)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{b.Bytes}, PrivateKey: key, Leaf: leaf}, nil
}

func requestOf(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// stream asks for clusters as a proxy, and returns what comes first.
func streamAs(ctx context.Context, t *testing.T, conn *grpc.ClientConn, node string) (*discoveryv3.DiscoveryResponse, error) {
	t.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: envoy.ClusterType, Node: &corev3.Node{Id: node}})
	return stream.Recv()
}

// TestSecurePort goes from a token to a certificate to a stream, and keeps everybody else out. The CA and the key of
// tokens outlive the server.
func TestSecurePort(t *testing.T) {
	o := certificateOptions(t)
	const inA, inB = "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local", "sidecar~10.1.1.2~web-0.b~b.svc.cluster.local"
	var own tls.Certificate
	for _, start := range []string{"first", "second"} {
		t.Run(start, func(t *testing.T) {
			s, stop := running(t, o)
			key, err := token.LoadKey(o.Certificates.StateDir)
			must.Succeed(t, err)
			text, err := key.Issue("a", "web", time.Hour, time.Now())
			must.Succeed(t, err)
			bearer := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+text)
			roots := rootsOf(t, o)
			conn := dialSecure(t, s.Addresses().SecureGRPC, roots)
			if _, err := issued(t.Context(), t, conn); status.Code(err) != codes.Unauthenticated {
				t.Errorf("without a token: %v", err)
			}
			if _, err := streamAs(t.Context(), t, conn, inA); status.Code(err) != codes.Unauthenticated {
				t.Errorf("a stream without a token: %v", err)
			}
			if own.Leaf != nil { // of the server before
				if _, err := streamAs(t.Context(), t, dialSecure(t, s.Addresses().SecureGRPC, roots, own), inA); err != nil {
					t.Errorf("with a certificate of the server before: %v", err)
				}
			}
			if own, err = issued(bearer, t, conn); err != nil {
				t.Fatal(err)
			}
			if len(own.Leaf.URIs) != 1 || own.Leaf.URIs[0].String() != "spiffe://cluster.local/ns/a/sa/web" {
				t.Errorf("%v", own.Leaf.URIs)
			}
			withCertificate := dialSecure(t, s.Addresses().SecureGRPC, roots, own)
			for _, c := range []struct {
				what string
				ctx  context.Context
				conn *grpc.ClientConn
			}{{"token", bearer, conn}, {"certificate", t.Context(), withCertificate}} {
				if _, err := streamAs(c.ctx, t, c.conn, inA); err != nil {
					t.Errorf("by %s: %v", c.what, err)
				}
				if _, err := streamAs(c.ctx, t, c.conn, inB); status.Code(err) != codes.PermissionDenied {
					t.Errorf("by %s, as another namespace's: %v", c.what, err)
				}
			}
			plain, err := grpc.NewClient(s.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
			must.Succeed(t, err)
			defer plain.Close()
			if _, err := issued(bearer, t, plain); status.Code(err) != codes.Unimplemented {
				t.Errorf("over plaintext: %v", err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDebugOverXDS asks for debug pages as istioctl does: the system namespace's accounts see how each proxy stands and
// what it was sent, others only what proxies of their own namespace were sent.
func TestDebugOverXDS(t *testing.T) {
	o := certificateOptions(t)
	s, stop := running(t, o)
	key, err := token.LoadKey(o.Certificates.StateDir)
	must.Succeed(t, err)
	conn := dialSecure(t, s.Addresses().SecureGRPC, rootsOf(t, o))
	as := func(namespace string) context.Context {
		text, err := key.Issue(namespace, "web", time.Hour, time.Now())
		must.Succeed(t, err)
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+text)
	}
	ask := func(ctx context.Context, typeURL string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = stream.CloseSend() }()
		if err := stream.Send(
			&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "istioctl"}, TypeUrl: typeURL, ResourceNames: names}); err != nil {
			return nil, err
		}
		return stream.Recv()
	}
	if _, err := streamAs(as("a"), t, conn, "sidecar~10.1.1.1~web-0.a~a.svc.cluster.local"); err != nil {
		t.Fatal(err)
	}
	m, err := ask(as("istio-system"), "istio.io/debug/syncz")
	if err != nil || len(m.Resources) != 1 || !strings.Contains(m.GetControlPlane().GetIdentifier(), `"Component":"istiod"`) {
		t.Fatalf("syncz: %v, %v", m, err)
	}
	var config statusv3.ClientConfig
	must.Succeed(t, m.Resources[0].UnmarshalTo(&config))
	if config.Node.GetId() != "web-0.a" || len(config.GenericXdsConfigs) != 5 ||
		config.GenericXdsConfigs[0].ConfigStatus == statusv3.ConfigStatus_NOT_SENT {
		t.Errorf("%v", &config)
	}
	for _, c := range []struct {
		namespace, typeURL, name, answers string // what the first answer has in it; empty: it is refused
	}{
		{"istio-system", "istio.io/debug/config_dump", "web-0.a", "outbound|80||"},
		{"istio-system", "istio.io/debug", "syncz", `"proxy":"web-0.a"`},
		{"istio-system", "istio.io/debug", "nothing", "404 page not found"},
		{"istio-system", "istio.io/debug", "edsz", "You must provide a proxyID"},
		{"a", "istio.io/debug/config_dump", "web-0.a", "outbound|80||"},
		{"a", "istio.io/debug", "config_dump?proxyID=web-0.a", "outbound|80||"},
		{"b", "istio.io/debug/config_dump", "web-0.a", ""},
		{"b", "istio.io/debug/config_dump", "gone.a", ""},
		{"a", "istio.io/debug/syncz", "", ""},
		{"a", "istio.io/debug", "configz", ""},
	} {
		m, err := ask(as(c.namespace), c.typeURL, c.name)
		switch {
		case c.answers == "":
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%v: %v, %v", c, m, err)
			}
		case err != nil || len(m.Resources) == 0 || !strings.Contains(string(m.Resources[0].Value), c.answers):
			t.Errorf("%v: %v, %v", c, m, err)
		}
	}
	if m, err := ask(as("istio-system"), "istio.io/debug/config_dump", "gone.a"); err != nil || len(m.Resources) != 0 {
		t.Errorf("of a proxy that is not connected: %v, %v", m, err)
	}
	// Kiali asks over plaintext HTTP.
	for namespace, want := range map[string]int{"istio-system": http.StatusOK, "a": http.StatusForbidden} {
		text, err := key.Issue(namespace, "kiali", time.Hour, time.Now())
		must.Succeed(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addresses().Monitoring+"/debug/syncz", nil)
		must.Succeed(t, err)
		r.Header.Set("Authorization", "Bearer "+text)
		resp, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("a token of %s over HTTP: %s, %v", namespace, resp.Status, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestPluggedCA serves with the operator's CA, and does not start with half of one.
func TestPluggedCA(t *testing.T) {
	o := certificateOptions(t)
	o.Certificates.StateDir = ""
	b, err := pki.NewSelfSigned("example", 24*time.Hour, time.Now())
	must.Succeed(t, err)
	f, err := b.Encode()
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(o.Certificates.Folder, 0o700))
	put := func(name string, text []byte) {
		must.Succeed(t, os.WriteFile(filepath.Join(o.Certificates.Folder, name), text, 0o600))
	}
	put("ca-cert.pem", f.Certificate)
	put("ca-key.pem", f.Key)
	if _, err := New(o); err == nil {
		t.Error("a CA without a root")
	}
	put("root-cert.pem", f.Roots)
	s := started(t, o)
	pool := x509.NewCertPool()
	pool.AddCert(b.Roots[0])
	if _, err := issued(t.Context(), t, dialSecure(t, s.Addresses().SecureGRPC, pool)); status.Code(err) != codes.Unauthenticated {
		t.Errorf("%v", err)
	}
}

// TestStateFolderIsRemoved while the server runs: the same CA is written again, so that workloads trust it after the
// next start too.
func TestStateFolderIsRemoved(t *testing.T) {
	o := certificateOptions(t)
	o.Certificates.Interval = time.Second // so the folder is looked at each second
	started(t, o)
	file := filepath.Join(o.Certificates.StateDir, "ca", "ca", "ca-cert.pem")
	before, err := os.ReadFile(file)
	must.Succeed(t, err)
	must.Succeed(t, os.RemoveAll(filepath.Join(o.Certificates.StateDir, "ca")))
	eventually(t, "the CA is there again", func() bool {
		now, err := os.ReadFile(file)
		return err == nil && bytes.Equal(now, before)
	})
}

// TestCompliance: under a policy, every port with TLS speaks only what the policy allows.
func TestCompliance(t *testing.T) {
	for policy, refused := range map[compliance.Policy]*tls.Config{
		compliance.FIPS1402: {MinVersion: tls.VersionTLS13},
		compliance.FIPS1403: {MinVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.X25519}},
		compliance.PQC:      {MinVersion: tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.CurveP256}},
	} {
		t.Run(string(policy), func(t *testing.T) {
			o := certificateOptions(t)
			o.HTTPS, o.Compliance = "127.0.0.1:0", policy
			s, _ := running(t, o)
			for _, address := range []string{s.Addresses().SecureGRPC, s.Addresses().HTTPS} {
				dial := func(c *tls.Config) error {
					c = c.Clone()
					c.RootCAs, c.ServerName, c.NextProtos = rootsOf(t, o), "istiod.istio-system.svc", []string{"h2"}
					d := tls.Dialer{Config: c}
					conn, err := d.DialContext(t.Context(), "tcp", address)
					if err == nil {
						_ = conn.Close()
					}
					return err
				}
				if err := dial(&tls.Config{MinVersion: tls.VersionTLS12}); err != nil {
					t.Errorf("%s: %v", address, err)
				}
				if err := dial(refused); err == nil {
					t.Errorf("%s takes a connection that the policy forbids", address)
				}
			}
		})
	}
}
