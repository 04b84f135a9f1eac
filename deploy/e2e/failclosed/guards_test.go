package failclosed

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
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

// issuer is a certificate authority of an operator, with a client whose certificate it has revoked and one whose
// certificate is good.
type issuer struct {
	bundle        *pki.Bundle
	secure        string // the address where a server that has the authority asks for certificates
	key           []byte
	good, revoked tls.Certificate
}

// newIssuer makes an authority for the servers of the group.
func newIssuer(t *testing.T, g *group) *issuer {
	t.Helper()
	b, err := pki.NewSelfSigned("operator", time.Hour, time.Now())
	must(t, err)
	files, err := b.Encode()
	must(t, err)
	port, err := cluster.FreePort(g.ctx, network.Gateway().String())
	must(t, err)
	return &issuer{bundle: b, secure: net.JoinHostPort(network.Gateway().String(), port), key: files.Key, good: certify(t, g, b),
		revoked: certify(t, g, b)}
}

// folder returns the files of ROOT_CA_DIR, by their name in the folder of the server.
func (i *issuer) folder(t *testing.T) map[string]string {
	t.Helper()
	root := string(pki.EncodeCertificates(i.bundle.Certificate))
	return map[string]string{
		"ca/ca-key.pem": string(i.key), "ca/ca-cert.pem": root, "ca/root-cert.pem": root,
		"ca/ca-crl.pem": revocation(t, i.bundle, i.key, i.revoked.Leaf.SerialNumber),
	}
}

// args are those of a server that asks for certificates.
func (i *issuer) args(string) []string { return []string{"--secureGRPCAddr", i.secure} }

// ask returns how the server answers a client.
func (i *issuer) ask(g *group, c tls.Certificate) codes.Code {
	code, _ := g.ask(i.secure, i.client(c), &discoveryv3.DeltaDiscoveryRequest{Node: g.node.Message(), TypeUrl: envoy.ClusterType})
	return code
}

func (i *issuer) client(c tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(i.bundle.Certificate)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{c}, ServerName: "istiod.istio-system.svc"}
}

// checks returns a check that a client is not answered. Another client, that is not nil, has to be.
func (i *issuer) checks(t *testing.T, g *group, refused tls.Certificate) func(when string, answered *tls.Certificate) {
	return func(when string, answered *tls.Certificate) {
		t.Helper()
		if code := i.ask(g, refused); code != codes.Unauthenticated && code != codes.Unavailable {
			t.Errorf("%s: the client that is to be refused is answered with %s", when, code)
		}
		if answered == nil {
			return
		}
		if code := i.ask(g, *answered); code != codes.OK {
			t.Errorf("%s: the other client is answered with %s", when, code)
		}
	}
}

// staysClosed breaks an input of the authority while the server runs and when it starts again. A client is refused all
// the time. The good one is answered for as long as a server runs.
func (i *issuer) staysClosed(t *testing.T, g *group, r row, f fault, refused tls.Certificate) {
	t.Helper()
	check := i.checks(t, g, refused)
	g.begin(t, r)
	check("at first", &i.good)
	g.breaks(t, r, f)
	g.says(t, f)
	check("while running", &i.good)
	g.stop()
	g.refuses(t, r, f)
	check("after a restart", nil)
}

// TestCA breaks the files of a certificate authority. Its witness is a client whose certificate is revoked, which is
// never answered. Another client is answered all the time.
func TestCA(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 6, false)
	ca := newIssuer(t, g)
	g.options.Env = append(g.options.Env, "ROOT_CA_DIR="+filepath.Join(g.dir, "ca"))
	files := ca.folder(t)
	for _, r := range caRows() {
		for _, f := range r.errors {
			t.Run(r.input+"/"+f.name, func(t *testing.T) {
				r.files, r.good, r.args = files, files[r.file], ca.args
				ca.staysClosed(t, g, r, f, ca.revoked)
			})
		}
	}
}

// says waits until the server says what is wrong.
func (g *group) says(t *testing.T, f fault) {
	t.Helper()
	said := regexp.MustCompile(f.said)
	g.eventually(t, "the server says "+f.said, func() bool { return said.MatchString(g.findings()) || said.MatchString(g.log(t)) })
}

// TestCAOfAPIServer breaks the Secret that holds the certificate authority. Its witness is a client of another
// authority, which is never answered.
func TestCAOfAPIServer(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 9, false)
	_, api := startAPIServer(t, g)
	ca := newIssuer(t, g)
	other, err := pki.NewSelfSigned("another", time.Hour, time.Now())
	must(t, err)
	stranger := certify(t, g, other)
	env := append(g.options.Env, "POD_NAME=istiod-0", "ENABLE_LEADER_ELECTION=false", "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL=4s")
	g.remove = func(*testing.T, row) {}
	for _, r := range caSecretRows(api) {
		g.options.Env = append(env, "USE_CACERTS_FOR_SELF_SIGNED_CA="+strconv.FormatBool(strings.Contains(r.good, "cacerts")))
		text := func(encoded string) string { return base64.StdEncoding.EncodeToString([]byte(encoded)) }
		r.args = ca.args
		r.good = strings.NewReplacer("CERT", text(string(pki.EncodeCertificates(ca.bundle.Certificate))), "KEY",
			text(string(ca.key))).Replace(r.good)
		for _, f := range r.errors {
			t.Run(r.input+"/"+f.name, func(t *testing.T) {
				defer api.Set()
				ca.staysClosed(t, g, r, f, stranger)
			})
		}
	}
}

// TestSecrets breaks a Secret of a gateway. Its witness is a gateway that asks for what verifies its clients: it is
// sent that with the revocations, or nothing.
func TestSecrets(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 10, true)
	ca := newIssuer(t, g)
	files := ca.folder(t)
	delete(files, "ca/ca-crl.pem")
	g.options.Env = append(g.options.Env, "ROOT_CA_DIR="+filepath.Join(g.dir, "ca"))
	text := func(encoded string) string { return base64.StdEncoding.EncodeToString([]byte(encoded)) }
	fill := strings.NewReplacer("ROOT", text(files["ca/root-cert.pem"]), "KEY", text(files["ca/ca-key.pem"]),
		"LIST", text(revocation(t, ca.bundle, ca.key, ca.revoked.Leaf.SerialNumber)), "BROKEN", text("nonsense\n"))
	for _, r := range secretRows() {
		r.files, r.args, r.good, r.open = files, ca.args, fill.Replace(r.good), fill.Replace(r.open)
		for i, f := range r.errors {
			t.Run(r.input+"/"+f.name, func(t *testing.T) {
				f.content = fill.Replace(f.content)
				check := func(when string, want bool) {
					t.Helper()
					if got := ca.roots(t, g); got == "roots" || want && got != "roots and revocations" {
						t.Errorf("%s: the gateway is sent %s", when, got)
					}
				}
				g.begin(t, r)
				check("at first", true)
				if i == 0 {
					g.put(t, r, r.open)
					g.eventually(t, "the gateway is sent no revocations", func() bool { return ca.roots(t, g) == "roots" })
					g.put(t, r, r.good)
					g.eventually(t, "the gateway is sent revocations", func() bool { return ca.roots(t, g) == "roots and revocations" })
				}
				g.breaks(t, r, f)
				g.says(t, f)
				check("while running", f.running == kept)
				g.stop()
				if f.start == refused {
					g.refuses(t, r, f)
					return
				}
				if ready, said := g.start(t, r, nil); !ready {
					t.Fatalf("the server is not ready: %s", said)
				}
				g.says(t, f)
				check("after a restart", false)
			})
		}
	}
}

// roots asks as a gateway for what verifies its clients, and returns what the server sends.
func (i *issuer) roots(t *testing.T, g *group) string {
	t.Helper()
	const name = "kubernetes://input-cacert"
	code, answers := g.ask(i.secure, i.client(i.good),
		&discoveryv3.DeltaDiscoveryRequest{Node: g.node.Message(), TypeUrl: envoy.SecretType, ResourceNamesSubscribe: []string{name}},
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType}) // there is always an answer to this one
	if code != codes.OK {
		t.Fatalf("the gateway is answered with %s", code)
	}
	for _, r := range answers[envoy.SecretType] {
		s := &tlsv3.Secret{}
		must(t, r.GetResource().UnmarshalTo(s))
		switch context := s.GetValidationContext(); {
		case len(context.GetTrustedCa().GetInlineBytes()) == 0:
			return "no roots"
		case len(context.GetCrl().GetInlineBytes()) == 0:
			return "roots"
		}
		return "roots and revocations"
	}
	return "nothing"
}

// certify returns a certificate of the witness of a group.
func certify(t *testing.T, g *group, b *pki.Bundle) tls.Certificate {
	t.Helper()
	key, err := pki.GenerateKey()
	must(t, err)
	der, _, err := b.Sign(pki.Leaf{URI: "spiffe://cluster.local/ns/a/sa/" + g.node.Labels["app"], Key: key.Public(), TTL: time.Hour},
		time.Now())
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

// ask sends requests on a stream of ADS. It returns how the server answers the last one, and all that came until then,
// by type.
func (g *group) ask(address string, config *tls.Config, requests ...*discoveryv3.DeltaDiscoveryRequest) (
	codes.Code, map[string][]*discoveryv3.Resource) {
	ctx, cancel := context.WithTimeout(g.ctx, within)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return codes.Internal, nil
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return status.Code(err), nil
	}
	for _, r := range requests {
		_ = stream.Send(r) // the answer tells more
	}
	answers := map[string][]*discoveryv3.Resource{}
	for {
		r, err := stream.Recv()
		if err != nil {
			return status.Code(err), nil
		}
		answers[r.GetTypeUrl()] = append(answers[r.GetTypeUrl()], r.GetResources()...)
		if r.GetTypeUrl() == requests[len(requests)-1].GetTypeUrl() {
			return codes.OK, answers
		}
	}
}

// TestInjection breaks the templates of injection, their values and ProxyConfigs. Its witness is a Pod that is created:
// it gets a proxy, or it is refused.
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
				if i == 0 && r.open != "" {
					suite.Write(t, g.file(r), r.open)
					g.eventually(t, "a Pod is let through", func() bool { return g.inject(t) == "let through" })
					suite.Write(t, g.file(r), r.good)
					g.eventually(t, "a Pod is injected", func() bool { return g.inject(t) == "injected" })
				}
				g.breaks(t, r, f)
				g.says(t, f)
				if got := g.inject(t); got != "injected" {
					t.Errorf("while running: a Pod is %s", got)
				}
				g.stop()
				if f.start == refused {
					g.refuses(t, r, f)
					return
				}
				if ready, said := g.start(t, r, nil); !ready {
					t.Fatalf("the server is not ready: %s", said)
				}
				g.says(t, f)
				if got := g.inject(t); got != "injected" {
					t.Errorf("after a restart: a Pod is %s", got)
				}
			})
		}
	}
}

// inject asks the webhook for a Pod, and returns what becomes of the Pod.
func (g *group) inject(t *testing.T) string {
	t.Helper()
	const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
  "uid": "1", "operation": "CREATE", "namespace": "a",
  "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
  "object": {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "a"},
    "spec": {"containers": [{"name": "app", "image": "app"}]}
  }
}}`
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
