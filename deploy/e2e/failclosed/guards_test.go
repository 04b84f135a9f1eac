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
	"fmt"
	"math/big"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

// issuer is a plugged-in certificate authority, with a client whose certificate is revoked and one whose certificate is
// valid.
type issuer struct {
	bundle        *pki.Bundle
	secure        string // the address at which a server with the authority requires certificates
	key           []byte
	good, revoked tls.Certificate
}

// newIssuer creates an authority for the servers of the group.
func newIssuer(t *testing.T, g *group) *issuer {
	t.Helper()
	b, err := pki.NewSelfSigned("operator", time.Hour, time.Now())
	must.Succeed(t, err)
	files, err := b.Encode()
	must.Succeed(t, err)
	return &issuer{bundle: b, secure: freeAddress(network.Gateway().String()), key: files.Key, good: certify(t, g, b),
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

// args returns the arguments of a server that requires certificates.
func (i *issuer) args(string) []string { return []string{"--secureGRPCAddr", i.secure} }

// ask returns the answer of the server to a client.
func (i *issuer) ask(g *group, c tls.Certificate) codes.Code {
	code, _ := g.ask(i.secure, i.client(c), &discoveryv3.DeltaDiscoveryRequest{Node: g.node.Message(), TypeUrl: envoy.ClusterType})
	return code
}

func (i *issuer) client(c tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(i.bundle.Certificate)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{c}, ServerName: "istiod.istio-system.svc"}
}

// guard is a witness that is no proxy: a request, and the answers of a server to it.
type guard struct {
	ask  func(t *testing.T) string
	good string // the answer with the good input
	open string // the answer that must never come once an input breaks
}

// runGuarded runs rows with a guard as their witness.
func (g *group) runGuarded(t *testing.T, rows []row, w guard) {
	for _, r := range rows {
		for i, f := range r.tried() {
			t.Run(r.input+"/"+f.name, func(t *testing.T) {
				t.Cleanup(g.heal)
				check := func(when string, o outcome) {
					t.Helper()
					if got := w.ask(t); got == w.open || o != closed && got != w.good {
						t.Errorf("%s: the answer is %s", when, got)
					}
				}
				g.begin(t, r)
				g.eventually(t, "the answer is "+w.good, func() bool { return w.ask(t) == w.good })
				if i == 0 && r.open != "" {
					g.put(t, r, r.open)
					g.eventually(t, "the answer is "+w.open, func() bool { return w.ask(t) == w.open })
					g.put(t, r, r.good)
					g.eventually(t, "the answer is "+w.good, func() bool { return w.ask(t) == w.good })
				}
				g.breaks(t, r, f)
				g.says(t, f)
				check("while running", f.running)
				g.stop()
				if f.start == refused {
					g.refuses(t, r, f)
					check("after a restart", closed)
					return
				}
				g.starts(t, r)
				g.says(t, f)
				check("after a restart", f.start)
			})
		}
	}
}

// refuses returns a guard: one client is refused and another one is answered.
func (i *issuer) refuses(g *group, refused tls.Certificate) guard {
	const good, open = "what it should be", "one for the client that is to be refused"
	return guard{good: good, open: open, ask: func(*testing.T) string {
		if code := i.ask(g, refused); code != codes.Unauthenticated && code != codes.Unavailable {
			return open
		}
		if code := i.ask(g, i.good); code != codes.OK {
			return code.String() + " for the other client"
		}
		return good
	}}
}

// TestCA breaks the files of a certificate authority. Its witness is a client whose certificate is revoked, which must
// never be answered. Another client is always answered.
func TestCA(t *testing.T) {
	t.Parallel()
	g := newServer(t)
	ca := newIssuer(t, g)
	g.options.Env = append(g.options.Env, "ROOT_CA_DIR="+filepath.Join(g.dir, "ca"))
	rows := caRows()
	for i := range rows {
		r := &rows[i]
		r.files, r.args = ca.folder(t), ca.args
		r.good = r.files[r.file]
	}
	g.runGuarded(t, rows, ca.refuses(g, ca.revoked))
}

// says waits until the server reports the error.
func (g *group) says(t *testing.T, f fault) {
	t.Helper()
	said := regexp.MustCompile(f.said)
	g.eventually(t, "the server says "+f.said, func() bool { return said.MatchString(g.findings()) || said.MatchString(g.log(t)) })
}

// TestCAOfAPIServer breaks the Secret with the certificate authority. Its witness is a client of another authority,
// which must never be answered.
func TestCAOfAPIServer(t *testing.T) {
	t.Parallel()
	g := newServer(t)
	_, api := useAPIServer(t, g)
	ca := newIssuer(t, g)
	other, err := pki.NewSelfSigned("another", time.Hour, time.Now())
	must.Succeed(t, err)
	guard := ca.refuses(g, certify(t, g, other))
	env := append(g.options.Env, "POD_NAME=istiod-0", "ENABLE_LEADER_ELECTION=false", "CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL=4s")
	g.remove = func(*testing.T, row) {}
	for _, r := range caSecretRows(api) {
		g.options.Env = append(env, "USE_CACERTS_FOR_SELF_SIGNED_CA="+strconv.FormatBool(strings.Contains(r.good, "cacerts")))
		r.args, r.good = ca.args, ca.fill(t).Replace(r.good)
		g.runGuarded(t, []row{r}, guard)
	}
}

// fill returns a function that puts base64 in the place of the words of a Secret in the rows.
func (i *issuer) fill(t *testing.T) *strings.Replacer {
	t.Helper()
	text := func(plain string) string { return base64.StdEncoding.EncodeToString([]byte(plain)) }
	files := i.folder(t)
	return strings.NewReplacer("ROOT", text(files["ca/root-cert.pem"]), "KEY", text(files["ca/ca-key.pem"]),
		"LIST", text(files["ca/ca-crl.pem"]), "BROKEN", text("nonsense\n"))
}

// TestSecrets breaks a Secret of a gateway. Its witness is a gateway that subscribes to the roots for its clients: it
// gets them with the revocations, or nothing.
func TestSecrets(t *testing.T) {
	t.Parallel()
	g := newServer(t, asGateway)
	ca := newIssuer(t, g)
	ca.guardSecrets(t, g, secretRows(), func(t *testing.T) string { return ca.roots(t, g) })
}

// TestSecretsOfAPIServer makes an API server not answer for a Secret of a gateway. Its witness is a gateway that stays
// connected, because a server asks first whether the gateway may read Secrets.
func TestSecretsOfAPIServer(t *testing.T) {
	t.Parallel()
	g := newServer(t, asGateway)
	_, api := useAPIServer(t, g)
	ca := newIssuer(t, g)
	var mu sync.Mutex
	has := "nothing"
	ctx, cancel := context.WithCancel(g.ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			g.stream(ctx, ca.secure, ca.client(ca.good), func(r *discoveryv3.DeltaDiscoveryResponse) bool {
				mu.Lock()
				defer mu.Unlock()
				has = rootsIn(r.GetResources())
				return false
			}, ca.asks(g))
		}
	})
	t.Cleanup(func() { cancel(); asking.Wait() })
	ca.guardSecrets(t, g, apiSecretRows(api), func(*testing.T) string {
		mu.Lock()
		defer mu.Unlock()
		return has
	})
}

func (i *issuer) guardSecrets(t *testing.T, g *group, rows []row, ask func(*testing.T) string) {
	t.Helper()
	files, fill := i.folder(t), i.fill(t)
	delete(files, "ca/ca-crl.pem")
	g.options.Env = append(g.options.Env, "ROOT_CA_DIR="+filepath.Join(g.dir, "ca"))
	for n := range rows {
		r := &rows[n]
		r.files, r.args, r.good, r.open = files, i.args, fill.Replace(r.good), fill.Replace(r.open)
		for e := range r.errors {
			r.errors[e].content = fill.Replace(r.errors[e].content)
		}
	}
	g.runGuarded(t, rows, guard{ask, "roots and revocations", "roots"})
}

// asks returns the request of a gateway for the roots of its clients.
func (i *issuer) asks(g *group) *discoveryv3.DeltaDiscoveryRequest {
	return &discoveryv3.DeltaDiscoveryRequest{
		Node: g.node.Message(), TypeUrl: envoy.SecretType, ResourceNamesSubscribe: []string{"kubernetes://input-cacert"},
	}
}

// roots requests the roots of its clients as a gateway, and returns the answer of the server.
func (i *issuer) roots(t *testing.T, g *group) string {
	t.Helper()
	code, answers := g.ask(i.secure, i.client(i.good), i.asks(g),
		&discoveryv3.DeltaDiscoveryRequest{TypeUrl: envoy.ClusterType}) // this one is always answered
	if code != codes.OK {
		return code.String()
	}
	return rootsIn(answers[envoy.SecretType])
}

func rootsIn(list []*discoveryv3.Resource) string {
	if len(list) == 0 {
		return "nothing"
	}
	if len(list) > 1 {
		return fmt.Sprintf("%d secrets", len(list))
	}
	s := &tlsv3.Secret{}
	if err := list[0].GetResource().UnmarshalTo(s); err != nil {
		return err.Error()
	}
	switch context := s.GetValidationContext(); {
	case len(context.GetTrustedCa().GetInlineBytes()) == 0:
		return "no roots"
	case len(context.GetCrl().GetInlineBytes()) == 0:
		return "roots"
	}
	return "roots and revocations"
}

// certify returns a certificate of the witness of a group.
func certify(t *testing.T, g *group, b *pki.Bundle) tls.Certificate {
	t.Helper()
	key, err := pki.GenerateKey()
	must.Succeed(t, err)
	der, _, err := b.Sign(pki.Leaf{URI: "spiffe://cluster.local/ns/a/sa/" + g.node.Labels["app"], Key: key.Public(), TTL: time.Hour},
		time.Now())
	must.Succeed(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func revocation(t *testing.T, b *pki.Bundle, key []byte, serial *big.Int) string {
	t.Helper()
	signer, err := pki.ParseKey(key)
	must.Succeed(t, err)
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: serial, RevocationTime: time.Now()}},
	}, b.Certificate, signer)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

// ask sends requests on a stream of ADS. It returns the answer to the last one, and all answers until then, by type.
func (g *group) ask(address string, config *tls.Config, requests ...*discoveryv3.DeltaDiscoveryRequest) (
	codes.Code, map[string][]*discoveryv3.Resource) {
	ctx, cancel := context.WithTimeout(g.ctx, within)
	defer cancel()
	answers := map[string][]*discoveryv3.Resource{}
	code := g.stream(ctx, address, config, func(r *discoveryv3.DeltaDiscoveryResponse) bool {
		answers[r.GetTypeUrl()] = append(answers[r.GetTypeUrl()], r.GetResources()...)
		return r.GetTypeUrl() == requests[len(requests)-1].GetTypeUrl()
	}, requests...)
	return code, answers
}

// stream sends requests on a stream of ADS, and passes each answer to take until that returns true or the stream ends.
func (g *group) stream(ctx context.Context, address string, config *tls.Config, take func(*discoveryv3.DeltaDiscoveryResponse) bool,
	requests ...*discoveryv3.DeltaDiscoveryRequest) codes.Code {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return codes.Internal
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return status.Code(err)
	}
	for _, r := range requests {
		_ = stream.Send(r) // the answer contains the error
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return status.Code(err)
		}
		if take(r) {
			return codes.OK
		}
	}
}

// TestInjection breaks the templates of injection, their values and ProxyConfigs. Its witness is a Pod that is created:
// it gets a proxy, or is refused.
func TestInjection(t *testing.T) {
	t.Parallel()
	g := newServer(t)
	g.runGuarded(t, injectionRows(), guard{g.inject, "injected", "let through"})
}

// inject sends a Pod to the webhook, and returns the result.
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
