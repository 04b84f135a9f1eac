package failclosed

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// TestCA breaks the files of a certificate authority. Its witness is a client whose certificate is revoked: nobody
// answers it. Another client is answered all the time.
func TestCA(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 6, false)
	b, err := pki.NewSelfSigned("operator", time.Hour, time.Now())
	must(t, err)
	files, err := b.Encode()
	must(t, err)
	good, revoked := certify(t, b), certify(t, b)
	ca := map[string]string{
		"ca/ca-key.pem": string(files.Key), "ca/ca-cert.pem": string(files.Certificate), "ca/root-cert.pem": string(files.Roots),
		"ca/ca-crl.pem": revocation(t, b, files.Key, revoked.Leaf.SerialNumber),
	}
	port, err := cluster.FreePort(g.ctx, network.Gateway().String())
	must(t, err)
	secure := net.JoinHostPort(network.Gateway().String(), port)
	g.options.Env = append(g.options.Env, "ROOT_CA_DIR="+filepath.Join(g.dir, "ca"))
	ask := func(c tls.Certificate) codes.Code {
		roots := x509.NewCertPool()
		roots.AddCert(b.Certificate)
		return g.ask(secure, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{c}, ServerName: "istiod.istio-system.svc"})
	}
	for _, r := range caRows() {
		for _, f := range r.errors {
			t.Run(r.input+"/"+f.name, func(t *testing.T) {
				input := ca[r.file]
				r.files, r.good = ca, input
				r.args = func(string) []string { return []string{"--secureGRPCAddr", secure} }
				check := func(when string) {
					t.Helper()
					if code := ask(revoked); code != codes.Unauthenticated && code != codes.Unavailable {
						t.Errorf("%s: the revoked client is answered with %s", when, code)
					}
				}
				g.begin(t, r)
				if code := ask(good); code != codes.OK {
					t.Fatalf("a client that is not revoked is answered with %s", code)
				}
				check("at first")
				if f.content != "" {
					f.content = strings.ReplaceAll(f.content, "INPUT", input)
				}
				g.breaks(t, r, f)
				said := regexp.MustCompile(f.said)
				g.eventually(t, "the server says "+f.said, func() bool { return said.MatchString(g.findings()) || said.MatchString(g.log(t)) })
				check("while running")
				if code := ask(good); code != codes.OK {
					t.Errorf("while running: a client that is not revoked is answered with %s", code)
				}
				g.stop()
				g.refuses(t, r, f)
				check("after a restart")
			})
		}
	}
}

// certify returns a certificate of the workload.
func certify(t *testing.T, b *pki.Bundle) tls.Certificate {
	t.Helper()
	key, err := pki.GenerateKey()
	must(t, err)
	der, _, err := b.Sign(pki.Leaf{URI: "spiffe://cluster.local/ns/a/sa/web", Key: key.Public(), TTL: time.Hour}, time.Now())
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func revocation(t *testing.T, b *pki.Bundle, key []byte, serial *big.Int) string {
	t.Helper()
	signer, err := pki.ParseKey(key)
	must(t, err)
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: serial, RevocationTime: time.Now()}},
	}, b.Certificate, signer)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

// ask opens a stream of ADS, and returns how the server answers the first request.
func (g *group) ask(address string, config *tls.Config) codes.Code {
	ctx, cancel := context.WithTimeout(g.ctx, within)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return codes.Internal
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: g.node.Message(), TypeUrl: envoy.ClusterType}) // the answer tells more
		_, err = stream.Recv()
	}
	return status.Code(err)
}

// TestInjection breaks the templates of injection and their values. Its witness is a Pod that is created: it gets a
// proxy, or it is refused.
func TestInjection(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 7, false)
	for _, r := range injectionRows() {
		for i, f := range r.errors {
			t.Run(r.input+"/"+f.name, func(t *testing.T) {
				g.begin(t, r)
				if got := g.inject(t); got != "injected" {
					t.Fatalf("a Pod is %s", got)
				}
				if i == 0 {
					suite.Write(t, g.file(r), r.open)
					g.eventually(t, "a Pod is let through", func() bool { return g.inject(t) == "let through" })
					suite.Write(t, g.file(r), r.good)
					g.eventually(t, "a Pod is injected", func() bool { return g.inject(t) == "injected" })
				}
				g.breaks(t, r, f)
				said := regexp.MustCompile(f.said)
				g.eventually(t, "the server says "+f.said, func() bool { return said.MatchString(g.findings()) || said.MatchString(g.log(t)) })
				if got := g.inject(t); got != "injected" {
					t.Errorf("while running: a Pod is %s", got)
				}
				g.stop()
				g.refuses(t, r, f)
			})
		}
	}
}

// inject asks the webhook for a Pod, and returns what becomes of the Pod.
func (g *group) inject(t *testing.T) string {
	t.Helper()
	const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE", "namespace": "a",
"kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "a"}, "spec": {"containers": [{"name": "app", "image": "app"}]}}}}`
	resp, err := http.Post("http://"+g.http+"/inject", "application/json", bytes.NewReader([]byte(review)))
	if err != nil {
		return "not answered"
	}
	defer resp.Body.Close()
	var answer struct {
		Response struct {
			Allowed bool   `json:"allowed"`
			Patch   []byte `json:"patch"`
		} `json:"response"`
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil {
		return "not answered"
	}
	switch {
	case !answer.Response.Allowed:
		return "refused"
	case len(answer.Response.Patch) > 0:
		return "injected"
	default:
		return "let through"
	}
}
