package spire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// accounts are the accounts of namespace b. Each has one workload of its name, with a service. The account "remote" is
// of the other trust domain.
var accounts = []string{"server", "caller", "stranger", "late", "remote"}

// An agent notices that another server serves at ownSocket, where it would serve itself. It must be told to look at
// spireSocket, the name that SPIRE's charts give.
const (
	ownSocket   = "socket"
	spireSocket = "spire-agent.sock"
)

// address returns the address of the service of an account, and pod that of its workload.
func address(account string) string { return "10.96.1." + fmt.Sprint(number(account)) }
func pod(account string) string     { return "10.10.1." + fmt.Sprint(number(account)) }

func number(account string) int {
	for i, name := range accounts {
		if name == account {
			return i + 1
		}
	}
	panic("no account " + account)
}

// objects returns all objects but the pods. Each request makes a connection of its own, and is not retried. The server
// lets in two accounts by their identities.
func objects() string {
	all := suite.NamespacesYAML("istio-system", "b") + suite.PeerAuthenticationYAML("STRICT")
	for _, name := range accounts {
		all += suite.ServiceYAML(name, "b", address(name)) + fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: b}
spec: {host: %[1]s, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}, tcp: {connectTimeout: 60s}}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: b}
spec: {hosts: [%[1]s], http: [{retries: {attempts: 0}, route: [{destination: {host: %[1]s}}]}]}
---
`, name)
	}
	return all + `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: server, namespace: b}
spec:
  selector: {matchLabels: {app: server}}
  rules: [{from: [{source: {principals: [first.example/ns/b/sa/caller, second.example/ns/b/sa/remote]}}]}]
`
}

// mesh is a mesh whose workloads have certificates of two trust domains.
type mesh struct {
	*suite.Mesh
	t         *testing.T
	work      string
	workloads map[string]*world.Running
	directory world.Directory
}

func start(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{t: t, workloads: map[string]*world.Running{}}
	var err error
	m.work, err = os.MkdirTemp("", "m")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(m.work) })
	suite.LogTails(t, m.work)
	m.Mesh = suite.StartMesh(t.Context(), t, suite.MeshOptions{Network: network, CA: true, Config: meshConfig(""),
		Files: map[string]string{"mesh.yaml": objects()}})
	var pods string
	for _, name := range accounts {
		pods += suite.PodYAML(name, "b", pod(name), `"-http=8080"`, suite.Sidecar)
	}
	suite.Write(t, filepath.Join(m.Dir, "pods.yaml"), pods)
	m.directory, err = world.Read(m.Dir)
	must.Succeed(t, err)
	return m
}

// meshConfig returns a mesh configuration with an alias of the trust domain. An empty alias means none.
func meshConfig(alias string) string {
	text := "trustDomain: first.example\n"
	if alias != "" {
		text += "trustDomainAliases: [" + alias + "]\n"
	}
	return text
}

// run runs the workload of an account, whose agent finds SPIRE at a socket.
func (m *mesh) run(account string, d *domain, socket string) {
	m.t.Helper()
	agent := &proxy.Agent{
		Binary: os.Getenv(suite.AgentVar), Discovery: m.Pilot.SecureGRPC, Roots: m.Roots,
		Token:   proxy.Tokens(os.Getenv(suite.PilotVar), m.State),
		Environ: []string{"TRUST_DOMAIN=" + d.name, "WORKLOAD_IDENTITY_SOCKET_FILE=" + socket},
	}
	d.provides(filepath.Join(m.work, account, "var/run/secrets/workload-spiffe-uds"), socket)
	one := m.directory
	one.Pods = []world.Pod{m.directory.Pods[number(account)-1]}
	w, err := suite.StartPods(network, world.Options{Directory: one, Envoy: envoyOf(os.Getenv(dirVar), account), Agent: agent,
		Delta: true, WorkDir: m.work})
	must.Succeed(m.t, err)
	m.t.Cleanup(w.Stop)
	m.workloads[account] = w.Pod(account)
}

// ready waits until a workload has its configuration and certificates.
func (m *mesh) ready(account string) {
	m.t.Helper()
	suite.Eventually(m.t, account+" is ready", func() bool { return m.workloads[account].Proxy.Healthy(m.t.Context()) == nil })
}

const requestTimeout = 20 * time.Second

// send sends a request from one workload to the service of another. It returns what the called sidecar says of the
// caller.
func (m *mesh) send(ctx context.Context, from, to string) (peer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	const header = "x-forwarded-client-cert"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(to)+"/?header="+header, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DialContext: m.workloads[from].Location.DialContext, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	answer, err := echo.Decode(resp)
	return answer.Headers[header], err
}

// refused reports whether a request fails because one of both sidecars does not accept the certificate of the other.
func (m *mesh) refused(from, to string) bool {
	m.t.Helper()
	before := m.unaccepted(from) + m.unaccepted(to)
	_, err := m.send(m.t.Context(), from, to)
	return err != nil && strings.Contains(err.Error(), "503") && m.unaccepted(from)+m.unaccepted(to) > before
}

// unaccepted returns how many certificates a sidecar has not accepted.
func (m *mesh) unaccepted(account string) (n int) {
	m.t.Helper()
	stats, err := m.workloads[account].Proxy.Stats(m.t.Context(), `ssl\.fail_verify_(san|error)$`)
	must.Succeed(m.t, err)
	for _, count := range stats {
		n += count
	}
	return n
}

// served returns the certificates that the sidecar of a workload shows.
func (m *mesh) served(account string) []*x509.Certificate {
	var chain []*x509.Certificate
	config := &tls.Config{NextProtos: []string{"istio"}, InsecureSkipVerify: true, //nolint:gosec // what is shown is looked at
		VerifyConnection: func(s tls.ConnectionState) error { chain = s.PeerCertificates; return nil }}
	ctx, cancel := context.WithTimeout(m.t.Context(), requestTimeout)
	defer cancel()
	if conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", pod(account)+":8080"); err == nil {
		_ = conn.Close()
	}
	return chain
}

// serves reports whether the certificate of a workload has an identity, and is signed by one of the roots.
func (m *mesh) serves(account, identity string, roots []*x509.Certificate) bool {
	chain := m.served(account)
	if len(chain) == 0 || len(chain[0].URIs) != 1 || chain[0].URIs[0].String() != identity {
		return false
	}
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, r := range roots {
		o.Roots.AddCert(r)
	}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(o)
	return err == nil
}

// renewed waits until the sidecar of a workload shows other certificates than now, as many times as renewals says.
func (m *mesh) renewed(account string, renewals int) {
	m.t.Helper()
	last := ""
	suite.Eventually(m.t, fmt.Sprintf("the certificate of %s is renewed %d times", account, renewals), func() bool {
		chain := m.served(account)
		if len(chain) == 0 {
			return false
		}
		if serial := chain[0].SerialNumber.String(); serial != last {
			last = serial
			renewals--
		}
		return renewals < 0
	})
}

// trusts reports whether the Envoy of a workload has a root.
func (m *mesh) trusts(account string, root *x509.Certificate) bool {
	body, err := m.workloads[account].Proxy.Get(m.t.Context(), "/config_dump?resource=dynamic_active_secrets")
	must.Succeed(m.t, err)
	var dump any
	must.Succeed(m.t, json.Unmarshal(body, &dump))
	return contains(dump, strings.TrimSpace(string(pki.EncodeCertificate(root.Raw))))
}

// contains reports whether a value has a text in the field inline_bytes or inline_string.
func contains(value any, text string) bool {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			s, ok := field.(string)
			if raw, err := base64.StdEncoding.DecodeString(s); ok && name == "inline_bytes" && err == nil {
				s = string(raw)
			}
			if ok && strings.HasPrefix(name, "inline_") && strings.Contains(s, text) || contains(field, text) {
				return true
			}
		}
	case []any:
		for _, field := range v {
			if contains(field, text) {
				return true
			}
		}
	}
	return false
}
