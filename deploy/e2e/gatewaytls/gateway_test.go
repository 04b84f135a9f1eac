package gatewaytls

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const startTimeout = 3 * time.Minute

// programs are the binaries under test, and agentBinary is one more.
var (
	programs    binaries.Set
	agentBinary string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gatewaytls")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if programs, err = binaries.Gather(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if agentBinary, err = programs.Agent(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// machine is where the gateway runs: no pod of its own.
type machine struct{ net.Dialer }

func (m *machine) Start(c *exec.Cmd) error { return c.Start() }

// ca issues certificates for hosts.
type ca struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newCA(t *testing.T) *ca {
	t.Helper()
	key := newKey(t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must.Succeed(t, err)
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &ca{c, key, 1}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return key
}

func (c *ca) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.certificate.Raw}))
}

func (c *ca) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.certificate)
	return p
}

// issue returns a certificate for a host and its key. Each has another serial number.
func (c *ca) issue(t *testing.T, host string, expires time.Time) (certificate, key string) {
	t.Helper()
	return c.sign(t, newKey(t), host, expires)
}

// sign is issue for a key.
func (c *ca) sign(t *testing.T, private crypto.Signer, host string, expires time.Time) (certificate, key string) {
	t.Helper()
	c.serial++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(c.serial), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, c.certificate, private.Public(), c.key)
	must.Succeed(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// client returns a certificate by which a client proves who it is.
func (c *ca) client(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	certificate, key := c.issue(t, name, soon())
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	must.Succeed(t, err)
	return &pair
}

// revoke returns a revocation list of the CA with these serial numbers.
func (c *ca) revoke(t *testing.T, serials ...int64) string {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: soon()}
	for _, n := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: list.ThisUpdate})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, c.certificate, c.key)
	must.Succeed(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

func soon() time.Time { return time.Now().Add(time.Hour) }

// serversYAML begins the Gateway whose servers follow, and routesYAML has routes for all their hosts; both end with a
// list that may go on.
const (
	serversYAML = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gw, namespace: ingress}
spec:
  selector: {istio: ingress}
  servers:
`
	routesYAML = `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: all, namespace: ingress}
spec:
  hosts: ["*.example.com"]
  gateways: [gw]
  http: [{route: [{destination: {host: web.internal, port: {number: 80}}}]}]
`
)

// secret returns a Secret as YAML.
func secret(name string, data map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: ingress}\ndata:\n", name)
	for k, v := range data {
		fmt.Fprintf(&b, "  %s: %s\n", k, base64.StdEncoding.EncodeToString([]byte(v)))
	}
	return b.String()
}

// freePorts returns ports on which nothing listens, and which no program gets that asks for any port.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for len(ports) < n {
		text, err := freeport.Pick(t.Context(), "127.0.0.1")
		must.Succeed(t, err)
		port, err := strconv.Atoi(text)
		must.Succeed(t, err)
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// rig is a control plane, and a gateway that is connected to it as an account of the namespace ingress.
type rig struct {
	t       *testing.T
	dir     string
	pilot   *controlplane.Process
	gateway *proxy.Proxy
	port    int         // of the gateway
	agent   proxy.Agent // of each gateway, but for its ports
}

// start starts a mesh of some files. delta is how the gateway asks, env are variables of the control plane and the
// agent.
func start(t *testing.T, port, admin int, delta bool, files map[string]string, env ...string) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	t.Cleanup(cancel)
	work := t.TempDir()
	suite.LogTails(t, work)
	r := &rig{t: t, dir: filepath.Join(work, "mesh"), port: port}
	must.Succeed(t, os.Mkdir(r.dir, 0o755))
	for name, text := range files {
		r.write(name, text)
	}
	r.run(ctx, controlplane.Options{ConfigDir: r.dir, WorkDir: work, Env: env}, admin, delta)
	return r
}

// run starts the control plane and the gateway.
func (r *rig) run(ctx context.Context, o controlplane.Options, admin int, delta bool) {
	r.t.Helper()
	o.Binary, o.Host, o.StateDir = programs.Pilot, "127.0.0.1", filepath.Join(o.WorkDir, "state")
	var err error
	if r.pilot, err = controlplane.Start(ctx, o); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.pilot.Stop)
	roots, err := os.ReadFile(filepath.Join(o.StateDir, "ca", "ca", "root-cert.pem"))
	must.Succeed(r.t, err)
	r.agent = proxy.Agent{Binary: agentBinary, Discovery: r.pilot.SecureGRPC, Roots: roots, Token: proxy.Tokens(programs.Pilot, o.StateDir),
		Environ: o.Env}
	r.gateway = r.proxy(o.WorkDir, "gateway", admin, delta)
}

// proxy starts a gateway with an agent of its own.
func (r *rig) proxy(work, name string, admin int, delta bool) *proxy.Proxy {
	r.t.Helper()
	own := r.agent
	ports := freePorts(r.t, 3)
	own.Ports = &[3]uint16{uint16(ports[0]), uint16(ports[1]), uint16(ports[2])}
	p, err := proxy.Start(proxy.Options{
		Binary: programs.Envoy, Location: &machine{}, Agent: &own, Delta: delta, Admin: fmt.Sprintf("127.0.0.1:%d", admin), WorkDir: work,
		Node: proxy.Node{
			Type: node.Router, Addr: netip.MustParseAddr("127.0.0.2"), Name: name, Namespace: "ingress", ServiceAccount: "gateway",
			Labels: map[string]string{"istio": "ingress"},
		},
	})
	must.Succeed(r.t, err)
	r.t.Cleanup(p.Stop)
	return p
}

// write replaces a file whole.
func (r *rig) write(name, text string) {
	r.t.Helper()
	suite.Write(r.t, filepath.Join(r.dir, name+".yaml"), text)
}

// findings returns the findings of the control plane.
func (r *rig) findings() []diag.Diagnostic {
	r.t.Helper()
	resp, err := r.pilot.Get(r.t.Context(), "/debug/findings")
	must.Succeed(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Succeed(r.t, err)
	if strings.Contains(string(text), "PRIVATE") {
		r.t.Errorf("a finding shows a key: %s", text)
	}
	var list []struct{ Object, Field, Message, Fix string }
	if err := json.Unmarshal(text, &list); err != nil {
		r.t.Fatalf("%v: %s", err, text)
	}
	var out []diag.Diagnostic
	for _, f := range list {
		out = append(out, diag.Diagnostic{Object: f.Object, Field: f.Field, Message: f.Message, Fix: f.Fix})
	}
	return out
}

// hasFinding reports whether a finding about a field contains a text and has a fix.
func (r *rig) hasFinding(object, field, says string) bool {
	for _, f := range r.findings() {
		if f.Object == object && f.Field == field && f.Fix != "" && strings.Contains(f.Message, says) {
			return true
		}
	}
	return false
}

// call makes one request on a connection of its own, and returns the certificate that the host showed.
func (r *rig) call(host string, roots *x509.CertPool, own *tls.Certificate) (*x509.Certificate, error) {
	config := &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
	if own != nil {
		config.Certificates = []tls.Certificate{*own}
	}
	state, err := r.callWith(config)
	if err != nil {
		return nil, err
	}
	return state.PeerCertificates[0], nil
}

// callWith sends one request to the server of the TLS configuration, and returns the negotiated parameters.
func (r *rig) callWith(config *tls.Config) (state tls.ConnectionState, err error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", r.port))
	if err != nil {
		return state, err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return state, err
		}
	}
	client := &http.Client{Transport: &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+config.ServerName+"/", nil)
	if err != nil {
		return state, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return state, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return state, err
	}
	if resp.StatusCode != http.StatusOK {
		return state, fmt.Errorf("the status is %d", resp.StatusCode)
	}
	return conn.(*tls.Conn).ConnectionState(), nil
}

// serves waits until a host is served with a certificate of that serial number.
func (r *rig) serves(host string, roots *x509.CertPool, own *tls.Certificate, serial int64) {
	r.t.Helper()
	suite.Eventually(r.t, fmt.Sprintf("%s is served with certificate %d", host, serial), func() bool {
		c, err := r.call(host, roots, own)
		return err == nil && c.SerialNumber.Int64() == serial
	})
}

// backend answers every request.
func backend(t *testing.T) (port int) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// mesh has the objects of all tests: a service, and the workload of the gateway.
func mesh(http, secure int) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: DISABLE}}
---
apiVersion: v1
kind: Pod
metadata: {name: gateway, namespace: ingress, labels: {istio: ingress}}
spec: {serviceAccountName: gateway, containers: [{name: istio-proxy, image: proxy}]}
status: {phase: Running, podIP: 127.0.0.2, podIPs: [{ip: 127.0.0.2}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: ingress}
spec:
  hosts: [web.internal]
  addresses: [10.96.0.10]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: %d}, {number: 443, name: tls, protocol: TLS, targetPort: %d}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints: [{address: 127.0.0.1}]
`, http, secure)
}
