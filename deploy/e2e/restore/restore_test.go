package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	startTimeout   = 5 * time.Minute
	requestTimeout = 15 * time.Second
	// rate is in requests a second of each load.
	rate = 25
)

// The servers of the old and of the new mesh have names, which lead to virtual addresses and to one pod each.
var hosts = map[string]string{"old": "10.97.0.1", "new": "10.97.0.2"}

// meshYAML is the mesh: only the account client may call, with mutual TLS, and each connection carries one request.
var meshYAML = suite.NamespacesYAML("istio-system", "shop") + suite.PeerAuthenticationYAML("STRICT") +
	entryYAML("old", "10.10.0.21") + entryYAML("new", "10.10.0.31") + `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: server, namespace: shop}
spec:
  selector: {matchLabels: {app: server}}
  rules: [{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}]
---
`

// entryYAML is a server whose identity clients demand.
func entryYAML(name, address string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.example.com]
  addresses: [%[2]s]
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  location: MESH_INTERNAL
  resolution: STATIC
  subjectAltNames: ["spiffe://cluster.local/ns/shop/sa/server"]
  endpoints: [{address: %[3]s, serviceAccount: server, labels: {security.istio.io/tlsMode: istio}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: %[1]s, namespace: shop}
spec:
  host: %[1]s.example.com
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}
---
`, name, hosts[name], address)
}

// podsYAML has the server and the client of a mesh.
func podsYAML(name, server, client string) string {
	var all strings.Builder
	for app, address := range map[string]string{"server": server, "client": client} {
		args := ""
		if app == "server" {
			args = `"-http=8080"`
		}
		fmt.Fprintf(&all, `apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[2]s, namespace: shop, labels: {app: %[1]s, %[5]s}}
spec: {serviceAccountName: %[1]s, containers: [{name: app, image: echo, args: [%[4]s]}]}
status: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}], conditions: [{type: Ready, status: "True"}]}
---
`, app, name, address, args, suite.Sidecar)
	}
	return all.String()
}

// mesh is a control plane of an API server, and its pods.
type mesh struct {
	*world.World
	cluster *cluster.Cluster
	pilot   *controlplane.Process
	name    string
}

// start starts a control plane and the pods of a mesh.
func start(ctx context.Context, t *testing.T, c *cluster.Cluster, name, pods string) *mesh {
	t.Helper()
	must.Succeed(t, c.Apply(ctx, []byte(pods)))
	work := t.TempDir()
	suite.LogTails(t, work)
	host := network.Gateway().String()
	port, err := freeport.Pick(ctx, host)
	must.Succeed(t, err)
	m := &mesh{cluster: c, name: name}
	m.pilot, err = controlplane.Start(ctx, controlplane.Options{
		Binary: os.Getenv(suite.PilotVar), Kubeconfig: c.Kubeconfig(), Host: host, WorkDir: work,
		Args: []string{"--secureGRPCAddr", net.JoinHostPort(host, port), "--ctrlz_port=0"},
		Env:  []string{"POD_NAME=istiod-0", "POD_NAMESPACE=istio-system", "INJECT_ENABLED=false"},
	})
	must.Succeed(t, err)
	t.Cleanup(m.pilot.Stop)
	m.run(ctx, t, pods, m.roots(t), m.pilot.SecureGRPC, m.token)
	return m
}

// run runs pods, and waits until their proxies are ready.
func (m *mesh) run(ctx context.Context, t *testing.T, pods string, roots []byte, discovery string,
	token func(ctx context.Context, namespace, account string) ([]byte, error)) {
	t.Helper()
	dir := t.TempDir()
	suite.LogTails(t, dir)
	suite.Write(t, filepath.Join(dir, "pods.yaml"), pods)
	directory, err := world.Read(dir)
	must.Succeed(t, err)
	m.World, err = suite.StartPods(network, world.Options{Directory: directory, Envoy: os.Getenv(suite.EnvoyVar), Delta: true, WorkDir: dir,
		Agent: &proxy.Agent{Binary: os.Getenv(suite.AgentVar), Discovery: discovery, Roots: roots, Token: token}})
	must.Succeed(t, err)
	t.Cleanup(m.World.Stop)
	must.Succeed(t, m.Ready(ctx))
}

// token requests a token of the API server.
func (m *mesh) token(ctx context.Context, namespace, account string) ([]byte, error) {
	made, err := m.cluster.Client().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"istio-ca"}}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return []byte(made.Status.Token), nil
}

// ca returns the Secret of the CA.
func (m *mesh) ca(t *testing.T) map[string][]byte {
	t.Helper()
	s, err := m.cluster.Client().CoreV1().Secrets("istio-system").Get(t.Context(), "istio-ca-secret", metav1.GetOptions{})
	must.Succeed(t, err)
	return s.Data
}

func (m *mesh) roots(t *testing.T) []byte { t.Helper(); return m.ca(t)["root-cert.pem"] }

// load has the client of a mesh call the server of a host all the time.
func (m *mesh) load(t *testing.T, host string) load.Traffic {
	t.Helper()
	dial := m.Pod("client-" + m.name).Location.DialContext
	client := &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 32}}
	send := func(ctx context.Context) (string, error) { return call(ctx, client, host) }
	suite.Eventually(t, fmt.Sprintf("an answer of the %s server to the client of %s", host, m.name), func() bool {
		_, err := send(t.Context())
		return err == nil
	})
	return load.Begin(t, load.Options{Rate: rate, Timeout: requestTimeout}, send)
}

func call(ctx context.Context, client *http.Client, host string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hosts[host]+"/", nil)
	if err != nil {
		return "", err
	}
	req.Host = host + ".example.com"
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(resp.Body)
		return "", fmt.Errorf("%s: %s", resp.Status, reason)
	}
	answer, err := echo.Decode(resp)
	return answer.Name, err
}

// answers waits until each load has had the answers of some seconds. No request has failed.
func answers(t *testing.T, traffic load.Traffic) {
	t.Helper()
	for _, r := range traffic {
		before := r.Report().Answered
		suite.Eventually(t, "answers to one more load", func() bool { return r.Report().Answered > before+3*rate })
	}
	must.Succeed(t, traffic.Err())
}

// failures are the statistics of Envoy that count handshakes that failed.
const failures = `ssl\.(connection_error|fail_verify_no_cert|fail_verify_error|fail_verify_san|fail_verify_cert_hash)$`

// handshakes fails the test if a handshake of a mesh has failed, and returns how many its server has seen.
func (m *mesh) handshakes(t *testing.T) int {
	t.Helper()
	n := 0
	for _, app := range []string{"server", "client"} {
		p := m.Pod(app + "-" + m.name).Proxy
		text, err := p.Get(t.Context(), "/stats?filter="+regexp.QuoteMeta("ssl."))
		must.Succeed(t, err)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if regexp.MustCompile(failures).MatchString(name) && value != "0" {
				t.Errorf("%s-%s: %s", app, m.name, line)
			}
			if count := 0; app == "server" && strings.HasPrefix(name, "listener.") && strings.HasSuffix(name, "ssl.handshake") {
				_, err := fmt.Sscan(value, &count)
				must.Succeed(t, err)
				n += count
			}
		}
	}
	return n
}

// identities are the identities in the certificates of a mesh's Envoys.
func (m *mesh) identities(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, app := range []string{"server", "client"} {
		text, err := m.Pod(app+"-"+m.name).Proxy.Get(t.Context(), "/certs")
		must.Succeed(t, err)
		for _, id := range regexp.MustCompile(`spiffe://[^"]+`).FindAllString(string(text), -1) {
			found[id] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestAnotherCluster: what was backed up of one API server is restored on another one. The first is lost then. Clients
// of both meshes call the servers of both.
func TestAnotherCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	began := func() *cluster.Cluster {
		c, err := cluster.Start(ctx, cluster.Options{})
		must.Succeed(t, err)
		t.Cleanup(c.Stop)
		return c
	}
	first := began()
	must.Succeed(t, first.InstallCRDs(ctx, os.Getenv(crdsVar)))
	must.Succeed(t, first.Apply(ctx, []byte(meshYAML)))
	old := start(ctx, t, first, "old", podsYAML("old", "10.10.0.21", "10.10.0.22"))
	traffic := old.load(t, "old")
	files := backup(t, first)

	second := began()
	restore(t, second, files)
	fresh := start(ctx, t, second, "new", podsYAML("new", "10.10.0.31", "10.10.0.32"))
	if !maps.EqualFunc(old.ca(t), fresh.ca(t), bytes.Equal) {
		t.Error("the CA of the new mesh is another one")
	}
	for _, m := range []*mesh{old, fresh} {
		for _, host := range []string{"old", "new"} {
			traffic = append(traffic, m.load(t, host)...)
		}
	}
	answers(t, traffic)
	if before, now := old.identities(t), fresh.identities(t); !slices.Equal(before, now) || len(now) != 2 {
		t.Errorf("identities %v, and before %v", now, before)
	}

	old.pilot.Stop()
	first.Stop()
	answers(t, traffic)
	for name, m := range map[string]*mesh{"server-old": old, "server-new": fresh} {
		if answered, n := traffic.Heard(name), m.handshakes(t); n < answered {
			t.Errorf("%s answered %d requests over %d connections", name, answered, n)
		}
	}
	// The certificate of the server alone does not open its door: the account decides.
	if _, err := call(ctx, &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DialContext: fresh.Pod("server-new").Location.DialContext}}, "old"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a call of an account that may not call: %v", err)
	}
}

// TestStateFolder: a server starts with a copy of the folder of another one, which runs. Both have one CA, and accept
// the tokens of both.
func TestStateFolder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	pods := map[string]string{"old": podsYAML("old", "10.10.0.21", "10.10.0.22"), "new": podsYAML("new", "10.10.0.31", "10.10.0.32")}
	dir := t.TempDir()
	suite.Write(t, filepath.Join(dir, "mesh.yaml"), meshYAML+pods["old"]+pods["new"])
	serve := func(name, state string) *mesh {
		work := t.TempDir()
		suite.LogTails(t, work)
		m := &mesh{name: name}
		var err error
		m.pilot, err = controlplane.Start(ctx, controlplane.Options{Binary: os.Getenv(suite.PilotVar), ConfigDir: dir,
			Host: network.Gateway().String(), WorkDir: work, StateDir: state})
		must.Succeed(t, err)
		t.Cleanup(m.pilot.Stop)
		return m
	}
	work := t.TempDir()
	state, copied := filepath.Join(work, "state"), filepath.Join(work, "backup")
	old := serve("old", state)
	tokens := proxy.Tokens(os.Getenv(suite.PilotVar), state)
	roots, err := os.ReadFile(filepath.Join(state, "ca", "ca", "root-cert.pem"))
	must.Succeed(t, err)
	old.run(ctx, t, pods["old"], roots, old.pilot.SecureGRPC, tokens)
	traffic := old.load(t, "old")

	for _, words := range commands(t, "A state folder") {
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = work
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(errors.Join(err, errors.New(string(out))))
		}
	}
	fresh := serve("new", copied)
	fresh.run(ctx, t, pods["new"], roots, fresh.pilot.SecureGRPC, tokens) // tokens and roots are of the first folder
	for _, m := range []*mesh{old, fresh} {
		for _, host := range []string{"old", "new"} {
			traffic = append(traffic, m.load(t, host)...)
		}
	}
	old.pilot.Kill()
	answers(t, traffic)
	for _, m := range []*mesh{old, fresh} {
		if m.handshakes(t) == 0 {
			t.Errorf("the server of %s has seen no handshake", m.name)
		}
	}
}
