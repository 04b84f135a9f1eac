package pilotagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/load"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// podYAML is a pod whose Envoy an agent of this test supervises.
func podYAML(name, app, address string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: b, labels: {app: %s, security.istio.io/tlsMode: istio, sidecar.istio.io/inject: "false"}}
spec:
  serviceAccountName: %[2]s
  containers: [{name: app, image: echo, args: ["-http=8080"]}]
status:
  phase: Running
  podIP: %[3]s
  podIPs: [{ip: %[3]s}]
  conditions: [{type: Ready, status: "True"}]
`, name, app, address)
}

// meshYAML has a service whose calls are mutual TLS, a caller by a forward proxy, and a gateway.
var meshYAML = suite.NamespacesYAML("istio-system", "b") + `apiVersion: v1
kind: Service
metadata: {name: named, namespace: b}
spec:
  clusterIP: 10.96.0.9
  clusterIPs: [10.96.0.9]
  ports: [{name: tcp, port: 99}]
---
` +
	suite.PeerAuthenticationYAML("STRICT") + suite.UncapturedYAML +
	suite.GatewayYAML("entry", "b", 8000) +
	entryYAML("entry")

// entryYAML has the gateway lead calls of NAME.example.com to the service.
func entryYAML(name string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: b}
spec: {hosts: ["%[1]s.example.com"], gateways: [entry], http: [{route: [{destination: {host: server.b.svc.cluster.local}}]}]}
---
`, name)
}

var (
	firstYAML  = podYAML("first", "server", "10.10.0.21")
	othersYAML = podYAML("second", "server", "10.10.0.24") + podYAML("caller", "caller", "10.10.0.22") +
		podYAML("gateway", "gateway", "10.10.0.23")
)

const requestTimeout = 15 * time.Second

// mesh is a control plane, and pods whose Envoys agents supervise.
type mesh struct {
	*suite.Mesh
	agents map[string]*agent
}

// agent is a running agent of one pod.
type agent struct {
	cmd  *exec.Cmd
	dir  string
	done chan struct{} // closed when it has ended
}

func (a *agent) log() string {
	text, _ := os.ReadFile(filepath.Join(a.dir, "agent.log"))
	return string(text)
}

// start starts an agent in a pod, as injection would. With foreign another server has its certificates.
func (m *mesh) start(t *testing.T, name, account, role string, foreign bool) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // the path of a socket is short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &agent{dir: dir, done: make(chan struct{})}
	for _, dir := range []string{"var/run/secrets/tokens", "var/run/secrets/istio", "etc/istio/pod"} {
		must.Succeed(t, os.MkdirAll(filepath.Join(a.dir, dir), 0o755))
	}
	token, err := exec.CommandContext(t.Context(), os.Getenv(suite.PilotVar), "token", "b", account, "--stateDir", m.State).Output()
	must.Succeed(t, err)
	roots, err := os.ReadFile(filepath.Join(m.State, "ca", "ca", "root-cert.pem"))
	must.Succeed(t, err)
	suite.Write(t, filepath.Join(a.dir, "var/run/secrets/tokens/istio-token"), strings.TrimSpace(string(token)))
	suite.Write(t, filepath.Join(a.dir, "var/run/secrets/istio/root-cert.pem"), string(roots))
	suite.Write(t, filepath.Join(a.dir, "etc/istio/pod/labels"), fmt.Sprintf("app=%q\n", account))
	a.cmd = exec.CommandContext(context.Background(), os.Getenv(suite.AgentVar), "proxy", role, "--domain", "b.svc.cluster.local",
		"--proxyLogLevel=warning", "--log_output_level=default:info")
	a.cmd.Dir = a.dir
	a.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "PILOT_CERT_PROVIDER=istiod", "CA_ADDR=" + m.Pilot.SecureGRPC, "ISTIOD_SAN=istiod.istio-system.svc",
		"POD_NAME=" + name, "POD_NAMESPACE=b", "SERVICE_ACCOUNT=" + account, "INSTANCE_IP=" + m.World.Pod(name).Node.Addr.String(),
		"ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_WORKLOAD_NAME=" + account, "ISTIO_META_INTERCEPTION_MODE=NONE",
		"TRUST_DOMAIN=cluster.local",
		"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true", "MINIMUM_DRAIN_DURATION=100ms",
		"ISTIO_META_DNS_CAPTURE=true", "ISTIO_KUBE_APP_PROBERS=" + probersJSON,
		"ENVOY_SECURE_METRICS_PORT=15091", "ENVOY_SECURE_MERGED_METRICS_PORT=15092", "METRICS_LOCALHOST_ACCESS_ONLY=true",
		fmt.Sprintf(`PROXY_CONFIG={"discoveryAddress":%q,"binaryPath":%q,"concurrency":1,"proxyStatsMatcher":{"inclusionRegexps":[".*"]}}`,
			m.Pilot.SecureGRPC, os.Getenv(suite.EnvoyVar)),
	}
	if name == "second" {
		a.cmd.Env = append(a.cmd.Env, "OUTPUT_CERTS=certs")
	}
	if foreign {
		m.serveCertificates(t, a.dir, account)
		a.cmd.Env = append(a.cmd.Env, "WORKLOAD_IDENTITY_SOCKET_FILE="+foreignSocket)
	}
	log, err := os.Create(filepath.Join(a.dir, "agent.log"))
	must.Succeed(t, err)
	suite.LogTails(t, a.dir)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(t, m.World.Pod(name).Location.(interface{ Start(*exec.Cmd) error }).Start(a.cmd))
	go func() {
		_ = a.cmd.Wait()
		_ = log.Close()
		close(a.done)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Signal(syscall.SIGTERM) // the second ends it at once
		_ = a.cmd.Process.Signal(syscall.SIGINT)
		<-a.done
	})
	m.agents[name] = a
	return a
}

// get sends a request from a pod and returns who answered.
func (m *mesh) get(ctx context.Context, pod, address, host string) (string, error) {
	return send(ctx, &http.Client{Transport: &http.Transport{DialContext: m.World.Pod(pod).Location.DialContext, DisableKeepAlives: true}},
		address, host)
}

func send(ctx context.Context, client *http.Client, address, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	answer, err := echo.Decode(resp)
	return answer.Name, err
}

// ask calls a port of an agent or its Envoy, from within the pod.
func (m *mesh) ask(t *testing.T, pod string, port int, path string) (int, string) {
	t.Helper()
	client := &http.Client{
		Timeout: requestTimeout, Transport: &http.Transport{DialContext: m.World.Pod(pod).Location.DialContext, DisableKeepAlives: true},
	}
	resp, err := client.Get("http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(resp.Body)
	return resp.StatusCode, text.String()
}

// drain runs the hook of a pod that is to end.
func (m *mesh) drain(t *testing.T, pod string) {
	t.Helper()
	hook := exec.CommandContext(t.Context(), os.Getenv(suite.AgentVar), "request", "--debug-port=15020", "POST", "drain")
	said := &bytes.Buffer{}
	hook.Stdout, hook.Stderr = said, said
	must.Succeed(t, m.World.Pod(pod).Location.(interface{ Start(*exec.Cmd) error }).Start(hook))
	if err := hook.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
}

// TestAgents: sidecars and a gateway get certificates and configuration through their agents, and one gets its
// certificates from another server. They call with mutual TLS only, and lose no request when the control plane is
// killed, or when a server ends with requests in flight.
func TestAgents(t *testing.T) {
	m := &mesh{agents: map[string]*agent{}}
	m.Mesh = suite.StartMesh(t.Context(), t, suite.MeshOptions{
		Network: network, CA: true, Env: []string{"ISTIOD_CUSTOM_HOST=" + network.Gateway().String(), "ISTIO_MULTIROOT_MESH=true"},
		Config: "trustDomain: cluster.local\n",
		Files:  map[string]string{"mesh.yaml": meshYAML + othersYAML, "first.yaml": firstYAML},
	})
	for name, of := range map[string][2]string{"first": {"server", "sidecar"}, "second": {"server", "sidecar"},
		"caller": {"caller", "sidecar"}, "gateway": {"gateway", "router"}} {
		m.start(t, name, of[0], of[1], name == "caller")
	}
	const host = "server.b.svc.cluster.local"
	for name := range m.agents {
		suite.Eventually(t, name+" is ready", func() bool {
			code, _ := m.ask(t, name, 15021, "/healthz/ready")
			return code == http.StatusOK
		})
	}

	t.Run("MutualTLS", func(t *testing.T) {
		seen := map[string]bool{}
		suite.Eventually(t, "answers of both servers", func() bool {
			name, err := m.get(t.Context(), "caller", "127.0.0.1:7070", host)
			seen[name] = err == nil
			return seen["first"] && seen["second"]
		})
		suite.Eventually(t, "an answer through the gateway", func() bool {
			_, err := m.get(t.Context(), "caller", "10.10.0.23:8000", "entry.example.com")
			return err == nil
		})
		if _, err := m.get(t.Context(), "caller", "10.10.0.21:8443", host); err == nil {
			t.Error("plaintext is served in mode STRICT")
		}
		if _, text := m.ask(t, "first", 15000, "/certs"); !strings.Contains(text, "spiffe://cluster.local/ns/b/sa/server") {
			t.Errorf("the server's Envoy has certificates %s", text)
		}
		if _, text := m.ask(t, "caller", 15000, "/certs"); !strings.Contains(text, "spiffe://cluster.local/ns/b/sa/caller") ||
			strings.Contains(m.agents["caller"].log(), "the workload has a certificate") {
			t.Errorf("the caller's Envoy has certificates %s; its agent:\n%s", text, m.agents["caller"].log())
		}
		if code, text := m.ask(t, "first", 15090, "/stats/prometheus"); code != http.StatusOK || !strings.Contains(text, "envoy_server_live") {
			t.Errorf("Envoy's metrics: %d, %.200s", code, text)
		}
		if code, text := m.ask(t, "first", 15020, "/stats/prometheus"); code != http.StatusOK || !strings.Contains(text, "istio_agent_") ||
			!strings.Contains(text, "envoy_server_live") {
			t.Errorf("merged metrics: %d, %.200s", code, text)
		}
	})

	t.Run("BesideEnvoy", m.testBesideEnvoy)
	t.Run("SecureMetrics", m.testSecureMetrics)
	t.Run("Crowd", m.testCrowd)
	t.Run("FurtherRoots", m.testFurtherRoots)

	// One connection for all requests, as applications have it.
	client := &http.Client{Transport: &http.Transport{DialContext: m.World.Pod("caller").Location.DialContext, MaxIdleConnsPerHost: 64}}
	traffic := load.Begin(t, load.Options{Rate: 200, Timeout: requestTimeout},
		func(ctx context.Context) (string, error) { return send(ctx, client, "127.0.0.1:7070", host) })

	t.Run("ControlPlaneIsKilled", func(t *testing.T) {
		m.Pilot.Kill()
		before := traffic.Heard("first")
		suite.Eventually(t, "a hundred answers without a control plane", func() bool { return traffic.Heard("first") > before+100 })
		must.Succeed(t, m.Pilot.Restart(t.Context()))
		suite.Write(t, filepath.Join(m.Dir, "late.yaml"), entryYAML("late"))
		suite.Eventually(t, "a route that came after the restart", func() bool {
			_, err := m.get(t.Context(), "caller", "10.10.0.23:8000", "late.example.com")
			return err == nil
		})
	})

	t.Run("ServerIsEnded", func(t *testing.T) {
		a := m.agents["first"]
		// As a kubelet does: the hook, then the signal. Between them clients learn that the endpoint goes.
		m.drain(t, "first")
		before := traffic.Heard("first")
		suite.Eventually(t, "answers of a server that drains", func() bool { return traffic.Heard("first") > before+50 })
		must.Succeed(t, os.Remove(filepath.Join(m.Dir, "first.yaml")))
		suite.Eventually(t, "the client knows that the endpoint goes", func() bool {
			code, text := m.ask(t, "caller", 15000, "/clusters")
			return code == http.StatusOK && strings.Contains(text, "10.10.0.24:8443") && !strings.Contains(text, "10.10.0.21:8443")
		})
		must.Succeed(t, a.cmd.Process.Signal(syscall.SIGTERM))
		<-a.done
		if code := a.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the agent ended with %d:\n%s", code, a.log())
		}
		before = traffic.Heard("second")
		suite.Eventually(t, "answers of the other server", func() bool { return traffic.Heard("second") > before+100 })
		if err := traffic.Err(); err != nil && !traffic.Starved() {
			t.Error(err)
		}
	})

	t.Run("GatewayDrains", func(t *testing.T) {
		client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{DialContext: m.World.Pod("caller").Location.DialContext}}
		defer client.CloseIdleConnections()
		closes := func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://10.10.0.23:8000/", nil)
			must.Succeed(t, err)
			req.Host = "late.example.com"
			resp, err := client.Do(req)
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusOK && resp.Close
		}
		if closes() {
			t.Error("a gateway that serves closes a connection")
		}
		m.drain(t, "gateway")
		suite.Eventually(t, "a gateway that drains asks its clients to close", closes)
	})

	t.Run("EnvoyIsKilled", func(t *testing.T) {
		a := m.agents["gateway"]
		said := regexp.MustCompile(`started Envoy\tpid=(\d+)`).FindStringSubmatch(a.log())
		if said == nil {
			t.Fatalf("the agent does not say which process Envoy is:\n%s", a.log())
		}
		pid, err := strconv.Atoi(said[1])
		must.Succeed(t, err)
		must.Succeed(t, syscall.Kill(pid, syscall.SIGKILL))
		<-a.done
		if code := a.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGKILL) {
			t.Errorf("the agent ended with %d, want that of Envoy", code)
		}
	})
}
