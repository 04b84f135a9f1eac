//go:build compat

package pairs

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// meshYAML has a server in mode STRICT, a caller by a forward proxy, and a gateway. Nothing redirects their traffic.
var meshYAML = suite.NamespacesYAML("istio-system", "b") +
	suite.PodYAML("server", "b", "10.10.0.21", `"-http=8080"`, suite.OwnAgent) +
	suite.PodYAML("caller", "b", "10.10.0.22", "", suite.OwnAgent) +
	suite.PodYAML("gateway", "b", "10.10.0.23", "", suite.OwnAgent) + `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: server, namespace: b, labels: {kubernetes.io/service-name: server}}
addressType: IPv4
ports: [{name: http, port: 8443, protocol: TCP}]
endpoints: [{addresses: [10.10.0.21], conditions: {ready: true}, targetRef: {kind: Pod, name: server, namespace: b}}]
---
apiVersion: v1
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
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: entry, namespace: b}
spec:
  hosts: ["entry.example.com"]
  gateways: [entry]
  http: [{route: [{destination: {host: server.b.svc.cluster.local}}]}]
---
`

const (
	startTimeout   = 5 * time.Minute
	requestTimeout = 15 * time.Second
)

// mesh is an API server, both control planes, which share a CA, and pods without Envoys.
type mesh struct {
	*world.World
	cluster      *cluster.Cluster
	roots        []byte
	ours, istiod string // HOST:PORT
}

func start(t *testing.T) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	m := &mesh{}
	var err error
	m.cluster, err = cluster.Start(ctx, cluster.Options{Dir: t.TempDir()})
	must(err)
	t.Cleanup(m.cluster.Stop)
	must(m.cluster.InstallCRDs(ctx, os.Getenv(crdsVar)))
	must(m.cluster.Apply(ctx, []byte(meshYAML)))
	m.ours = m.controlPlane(ctx, t, os.Getenv(suite.PilotVar), 25010)
	m.istiod = m.controlPlane(ctx, t, os.Getenv(istioIstiodVar), 35010) // it uses the existing CA
	s, err := m.cluster.Client().CoreV1().Secrets("istio-system").Get(ctx, "istio-ca-secret", metav1.GetOptions{})
	must(err)
	m.roots = s.Data["root-cert.pem"]

	dir := t.TempDir()
	suite.Write(t, filepath.Join(dir, "mesh.yaml"), meshYAML)
	directory, err := world.Read(dir)
	must(err)
	m.World, err = suite.StartPods(network, world.Options{Directory: directory, WorkDir: dir})
	must(err)
	t.Cleanup(m.Stop)
	return m
}

// controlPlane starts one, on ports of this network namespace from that one on. It returns where it serves proxies.
func (m *mesh) controlPlane(ctx context.Context, t *testing.T, binary string, port int) string {
	t.Helper()
	host := network.Gateway().String()
	at := func(n int) string { return fmt.Sprintf("%s:%d", host, port+n) }
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "control-plane.log"))
	must.Succeed(t, err)
	suite.LogTails(t, dir)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, "discovery", "--kubeconfig", m.cluster.Kubeconfig(), "--grpcAddr", at(0),
		"--secureGRPCAddr", at(2), "--httpAddr", at(3), "--httpsAddr", at(4),
		"--monitoringAddr", at(5), "--ctrlz_port", "0", "--log_output_level", "default:warn")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = []string{"HOME=" + dir, "POD_NAME=istiod-0", "POD_NAMESPACE=istio-system", "ENABLE_LEADER_ELECTION=false",
		"INJECT_ENABLED=false", "ISTIOD_CUSTOM_HOST=" + host}
	// Resources that istiod sends only to Istio's build of Envoy, which these tests do not use.
	cmd.Env = append(cmd.Env, "PILOT_ENABLE_METADATA_EXCHANGE=false", "PILOT_ENABLE_ALPN_FILTER=false")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); _ = log.Close(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	client := &http.Client{Timeout: requestTimeout}
	suite.Eventually(t, filepath.Base(binary)+" is ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended", binary)
		default:
		}
		resp, err := client.Get("http://" + at(3) + "/ready")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return at(2)
}

// agent is a running agent of one pod.
type agent struct {
	m     *mesh
	pod   string
	cmd   *exec.Cmd
	dir   string
	began time.Time
	done  chan struct{} // closed when it has ended
}

// start starts a program as the agent of a pod, as injection would. Both agents get the same settings.
func (m *mesh) start(t *testing.T, program, server, pod, role string) *agent {
	t.Helper()
	a := &agent{m: m, pod: pod, dir: t.TempDir(), done: make(chan struct{})}
	for _, dir := range []string{"var/run/secrets/tokens", "var/run/secrets/istio", "etc/istio/proxy", "var/lib/istio/data"} {
		must.Succeed(t, os.MkdirAll(filepath.Join(a.dir, dir), 0o755))
	}
	p, err := m.cluster.Client().CoreV1().Pods("b").Get(t.Context(), pod, metav1.GetOptions{})
	must.Succeed(t, err)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{"istio-ca"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID},
	}}
	token, err := m.cluster.Client().CoreV1().ServiceAccounts("b").CreateToken(t.Context(), pod, request, metav1.CreateOptions{})
	must.Succeed(t, err)
	suite.Write(t, filepath.Join(a.dir, "var/run/secrets/tokens/istio-token"), token.Status.Token)
	suite.Write(t, filepath.Join(a.dir, "var/run/secrets/istio/root-cert.pem"), string(m.roots))
	a.cmd = exec.CommandContext(context.Background(), program, "proxy", role, "--domain", "b.svc.cluster.local", "--proxyLogLevel=warning",
		"--log_output_level=default:info")
	a.cmd.Dir = a.dir
	a.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "PILOT_CERT_PROVIDER=istiod", "CA_ADDR=" + server, "ISTIOD_SAN=istiod.istio-system.svc",
		"CLOUD_PLATFORM=none", "HOST_IP=127.0.0.1",
		"POD_NAME=" + pod, "POD_NAMESPACE=b", "SERVICE_ACCOUNT=" + pod, "INSTANCE_IP=" + m.Pod(pod).Node.Addr.String(),
		"TRUST_DOMAIN=cluster.local",
		"ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_WORKLOAD_NAME=" + pod, "ISTIO_META_INTERCEPTION_MODE=NONE", "ISTIO_META_DNS_CAPTURE=true",
		fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q}`, pod), "TERMINATION_DRAIN_DURATION_SECONDS=0",
		fmt.Sprintf(`PROXY_CONFIG={"discoveryAddress":%q,"binaryPath":%q,"proxyBootstrapTemplatePath":%q,"concurrency":1,`+
			`"proxyStatsMatcher":{"inclusionRegexps":[".*"]}}`,
			server, os.Getenv(suite.EnvoyVar), filepath.Join(filepath.Dir(os.Getenv(istioAgentVar)), template)),
	}
	log, err := os.Create(filepath.Join(a.dir, "agent.log"))
	must.Succeed(t, err)
	suite.LogTails(t, a.dir)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.began = time.Now()
	must.Succeed(t, m.Pod(pod).Location.(interface{ Start(*exec.Cmd) error }).Start(a.cmd))
	go func() {
		_ = a.cmd.Wait()
		_ = log.Close()
		close(a.done)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Signal(syscall.SIGTERM) // so that its Envoy ends too
		<-a.done
	})
	return a
}

// client is one in the pod.
func (a *agent) client() *http.Client {
	return &http.Client{
		Timeout: requestTimeout, Transport: &http.Transport{DialContext: a.m.Pod(a.pod).Location.DialContext, DisableKeepAlives: true},
	}
}

// ask calls a port of the agent or its Envoy, from within the pod.
func (a *agent) ask(port int, path string) (int, string) {
	resp, err := a.client().Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var text strings.Builder
	buffer := make([]byte, 1<<16)
	for {
		n, err := resp.Body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return resp.StatusCode, text.String()
		}
	}
}

// ready waits until Envoy is, and returns how long after the start that was.
func (a *agent) ready(t *testing.T) time.Duration {
	t.Helper()
	suite.Eventually(t, a.pod+" is ready", func() bool {
		select {
		case <-a.done:
			t.Fatalf("the agent of %s has ended", a.pod)
		default:
		}
		code, _ := a.ask(15021, "/healthz/ready")
		return code == http.StatusOK
	})
	return time.Since(a.began)
}

// dial connects to a port of the pod's own.
func (a *agent) dial(ctx context.Context, kind string, port int) (net.Conn, error) {
	return a.m.Pod(a.pod).Location.DialContext(ctx, kind, fmt.Sprintf("127.0.0.1:%d", port))
}
