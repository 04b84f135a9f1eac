package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const testTimeout = 10 * time.Minute

// policies returns PeerAuthentications of the mesh, of the server's namespace, and of the server, each from its spec.
// An empty spec means none.
func policies(mesh, namespace, server string) string {
	text := ""
	for _, p := range []struct{ namespace, name, spec string }{
		{"istio-system", "default", mesh}, {"a", "default", namespace}, {"a", "server", server},
	} {
		if p.spec != "" {
			text += fmt.Sprintf("---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: %s, namespace: %s}\nspec: %s\n",
				p.name, p.namespace, p.spec)
		}
	}
	return text
}

// mode returns the spec of a PeerAuthentication with that mode.
func mode(m string) string { return "{mtls: {mode: " + m + "}}" }

// levels are policies at all levels, with the mode of each port of the server's pod. Port 0 means the other ports.
var levels = []struct {
	name, policies string
	modes          map[int]string
}{
	{"mesh PERMISSIVE", policies(mode("PERMISSIVE"), "", ""), map[int]string{0: "PERMISSIVE"}},
	{"mesh STRICT", policies(mode("STRICT"), "", ""), map[int]string{0: "STRICT"}},
	{"mesh DISABLE", policies(mode("DISABLE"), "", ""), map[int]string{0: "DISABLE"}},
	{"mesh DISABLE, namespace STRICT", policies(mode("DISABLE"), mode("STRICT"), ""), map[int]string{0: "STRICT"}},
	{
		"mesh STRICT, server DISABLE, its ports", policies(mode("STRICT"), "",
			`{selector: {matchLabels: {app: echo}}, mtls: {mode: DISABLE}, portLevelMtls: {8080: {mode: STRICT}, 9090: {mode: PERMISSIVE}}}`),
		map[int]string{0: "DISABLE", 8080: "STRICT", 9090: "PERMISSIVE"},
	},
	{
		"namespace PERMISSIVE, a port of the server STRICT",
		policies(mode("DISABLE"), mode("PERMISSIVE"), `{selector: {matchLabels: {app: echo}}, portLevelMtls: {8081: {mode: STRICT}}}`),
		map[int]string{0: "PERMISSIVE", 8081: "STRICT"},
	},
	{"mesh STRICT again", policies(mode("STRICT"), "", ""), map[int]string{0: "STRICT"}},
}

// TestModes has clients of every kind call a server in every mode, given at every level, by every protocol: of the
// mesh, without TLS, and with certificates of another CA and of another trust domain. Proxies of the newest and of the
// oldest version take the same.
func TestModes(t *testing.T) {
	t.Run("newest", testModes)
	t.Run("oldest", func(t *testing.T) {
		t.Setenv(suite.EnvoyVar, os.Getenv(suite.OldestEnvoyVar))
		testModes(t)
	})
}

func testModes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	all := slices.Concat(ports, morePorts)
	m := start(ctx, t, meshYAML(all...))
	w := m.World
	serveTLS(t, m)
	stranger := foreign{selfSigned(t, "stranger"), "cluster.local"}
	// A client of the mesh comes last: once the other clients get the expected results, the mode is in force at the
	// server.
	callers := []struct {
		name, pod string
		call      func(ctx context.Context, from world.Location, p port) error
		in        map[string]bool // whether it is served, by mode
	}{
		{"plaintext", "plain", func(ctx context.Context, from world.Location, p port) error {
			return call(ctx, from, net.JoinHostPort("10.10.0.11", strconv.Itoa(p.pod)), p, nil)
		}, map[string]bool{"STRICT": false, "PERMISSIVE": true, "DISABLE": true}},
		{"this mesh's certificate", "plain", tlsCall(t, m.Issuer), map[string]bool{"STRICT": true, "PERMISSIVE": true, "DISABLE": false}},
		{"another CA's certificate", "plain", tlsCall(t, stranger), map[string]bool{"STRICT": false, "PERMISSIVE": false, "DISABLE": false}},
		{"another trust domain's certificate", "plain", tlsCall(t, m.foreign(t)),
			map[string]bool{"STRICT": false, "PERMISSIVE": false, "DISABLE": false}},
		{"mesh", "client", func(ctx context.Context, from world.Location, p port) error {
			return call(ctx, from, net.JoinHostPort("10.96.0.10", strconv.Itoa(p.service)), p, nil)
		}, map[string]bool{"STRICT": true, "PERMISSIVE": true, "DISABLE": true}},
	}
	for _, l := range levels {
		suite.Write(t, filepath.Join(m.Dir, "mode.yaml"), l.policies)
		for _, c := range callers {
			for _, p := range all {
				is, ok := l.modes[p.pod]
				if !ok {
					is = l.modes[0]
				}
				suite.Eventually(t, fmt.Sprintf("%s: %s, %s: served %v", l.name, c.name, p.name, c.in[is]), func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					return (c.call(ctx, w.Pod(c.pod).Location, p) == nil) == c.in[is]
				})
			}
		}
	}
	handshakes, err := w.Pod("client").Proxy.Stats(t.Context(), `^cluster\.outbound.*ssl\.handshake$`)
	must.Succeed(t, err)
	for _, p := range all {
		if n := handshakes[fmt.Sprintf("cluster.outbound|%d||echo.a.svc.cluster.local;.ssl.handshake", p.service)]; n == 0 {
			t.Errorf("the client of the mesh called port %d without mutual TLS: %v", p.service, handshakes)
		}
	}
	// In mode STRICT, which is the last, only a client of the mesh reaches the port, which is known to speak HTTP.
	if n := requests(t, w); n == 0 {
		t.Error("the server did not take a call of the mesh to the port whose protocol is detected for HTTP")
	}
	if err := w.Healthy(ctx); err != nil {
		t.Error(err)
	}
}

// mesh is a control plane that follows a directory and has a CA, and the pods of the directory.
type mesh struct{ *suite.Mesh }

// start runs a mesh in mode PERMISSIVE, and returns once its proxies are ready. Agents trust the roots or, without any,
// the roots of the CA. They get a new certificate every few seconds, and write it to the folder certs.
func start(ctx context.Context, t *testing.T, objects string, roots ...*x509.Certificate) mesh {
	t.Helper()
	return mesh{suite.StartMesh(ctx, t, suite.MeshOptions{
		Network: network, Files: map[string]string{"mesh.yaml": objects, "mode.yaml": policies(mode("PERMISSIVE"), "", "")},
		CA: true, Roots: roots, Env: []string{"ISTIOD_CUSTOM_HOST=" + network.Gateway().String()},
		AgentEnv: []string{"SECRET_TTL=1m", "SECRET_GRACE_PERIOD_RATIO=0.95", "OUTPUT_CERTS=certs"},
	})}
}

// requests returns how many requests of the mesh's client the server's Envoy took for HTTP, on the port whose protocol
// it detects.
func requests(t *testing.T, w *world.World) int {
	const stat = "http.inbound_0.0.0.0_8081;.downstream_rq_total"
	before := stats(t, w, "echo", stat)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	must.Succeed(t, call(ctx, w.Pod("client").Location, "10.96.0.10:100", ports[2], nil))
	return stats(t, w, "echo", stat) - before
}

func stats(t *testing.T, w *world.World, pod, name string) int {
	all, err := w.Pod(pod).Proxy.Stats(t.Context(), "^"+regexp.QuoteMeta(name)+"$")
	must.Succeed(t, err)
	return all[name]
}

// call returns nil if the server answers on a port.
func call(ctx context.Context, from world.Location, address string, p port, secure *tls.Config) error {
	conn, err := dial(ctx, from, address, secure)
	if err != nil {
		return err
	}
	defer conn.Close()
	return p.speak(ctx, conn)
}

// foreign returns an issuer that signs, with the key of the mesh's CA, for another trust domain.
func (m mesh) foreign(t *testing.T) foreign {
	t.Helper()
	f := pki.Files{}
	for name, into := range map[string]*[]byte{"ca-cert.pem": &f.Certificate, "ca-key.pem": &f.Key, "root-cert.pem": &f.Roots} {
		var err error
		if *into, err = os.ReadFile(filepath.Join(m.State, "ca", "ca", name)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := pki.ParseBundle(f, time.Now())
	must.Succeed(t, err)
	return foreign{b, "other.example"}
}

// issuer has certificates signed, with their keys and roots, in PEM.
type issuer interface {
	Issue(ctx context.Context, namespace, account string) (chain, key, roots []byte, err error)
}

// foreign is an issuer of its own.
type foreign struct {
	ca          *pki.Bundle
	trustDomain string
}

// Issue implements issuer.
func (f foreign) Issue(_ context.Context, namespace, account string) (chain, key, roots []byte, err error) {
	private, err := pki.GenerateKey()
	if err != nil {
		return nil, nil, nil, err
	}
	der, _, err := f.ca.Sign(pki.Leaf{URI: "spiffe://" + f.trustDomain + "/ns/" + namespace + "/sa/" + account, Key: private.Public(),
		TTL: time.Hour}, time.Now())
	if err != nil {
		return nil, nil, nil, err
	}
	key, err = pki.EncodeKey(private)
	return pki.EncodeCertificate(der), key, pki.EncodeCertificate(f.ca.Certificate.Raw), err
}

// tlsCall returns a caller without a sidecar that has a certificate of an issuer, as a sidecar would.
func tlsCall(t *testing.T, by issuer) func(ctx context.Context, from world.Location, p port) error {
	t.Helper()
	chain, key, _, err := by.Issue(t.Context(), "a", "client")
	must.Succeed(t, err)
	own, err := tls.X509KeyPair(chain, key)
	must.Succeed(t, err)
	return func(ctx context.Context, from world.Location, p port) error {
		return call(ctx, from, net.JoinHostPort("10.10.0.11", strconv.Itoa(p.pod)), p, &tls.Config{
			Certificates: []tls.Certificate{own}, NextProtos: []string{p.alpn}, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // whether the server takes this client is what is tried
		})
	}
}
