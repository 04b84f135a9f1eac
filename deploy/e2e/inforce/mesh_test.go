package inforce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	sidecars, gateways = 18, 2
	proxies            = sidecars + gateways

	// testTimeout is far more than a busy machine needs.
	testTimeout = 15 * time.Minute
	// serverAddr is the address of the Service whose pods have no proxies.
	serverAddr = "10.96.1.1"
)

// settings are the namespaces and what is the same in all steps. The gateways may read the certificates of their
// namespace.
var settings = suite.NamespacesYAML("istio-system", "shop", "edge") + suite.PeerAuthenticationYAML("DISABLE") + `apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: certificates, namespace: edge}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: certificates, namespace: edge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: certificates}
subjects:
- {kind: ServiceAccount, name: gateway-0, namespace: edge}
- {kind: ServiceAccount, name: gateway-1, namespace: edge}
---
apiVersion: v1
kind: Service
metadata: {name: istiod, namespace: istio-system}
spec:
  ports:
  - {name: grpc-xds, port: 15010}
  - {name: https-dns, port: 15012}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.1.2, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: edge}
spec: {selector: {role: gateway}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
` + suite.ServiceYAML("server", "shop", serverAddr)

// replicaYAML returns the Pod of a replica, and its part of the Service's endpoints.
func replicaYAML(name, ip, port string, ready bool) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: istio-system, labels: {app: istiod}}
spec: {containers: [{name: discovery, image: pilot}]}
status: {phase: Running, podIP: %[2]s, podIPs: [{ip: %[2]s}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: istio-system, labels: {kubernetes.io/service-name: istiod}}
addressType: IPv4
ports:
- {name: https-dns, port: %[3]s, protocol: TCP}
endpoints:
- addresses: [%[2]s]
  conditions: {ready: %[4]v, serving: %[4]v, terminating: false}
  targetRef: {kind: Pod, name: %[1]s, namespace: istio-system}
---
`, name, ip, port, ready)
}

// endpointYAML returns a pod's part of a Service's endpoints.
func endpointYAML(service, pod, ip string) string {
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]s, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [%[3]s], conditions: {ready: true}, targetRef: {kind: Pod, name: %[2]s, namespace: shop}}]
---
`, service, pod, ip)
}

// injected adds a container and annotations to Pods, by which a control plane knows that they run its proxies.
var injected = strings.NewReplacer(
	"containers: [", "containers: [{name: istio-proxy, image: proxy}, ",
	suite.Sidecar+"}}", suite.Sidecar+"}, annotations: {istio.io/rev: default}}",
	"annotations: {", "annotations: {istio.io/rev: default, ",
)

// group is pods with proxies of one sort.
type group struct {
	delta, agents bool
	yaml          string
}

// mesh is two replicas of a control plane, twenty proxies of both, and servers without proxies.
type mesh struct {
	ctx      context.Context
	work     string
	cluster  *cluster.Cluster
	replicas [2]*controlplane.Process
	cut      atomic.Bool  // no proxy reaches a replica
	turn     atomic.Int64 // of the replicas
	client   *world.Running
	proxies  []*member
	asked    int // questions of wait so far

	version  int // of the route
	requests atomic.Int64
}

// member is a proxy.
type member struct {
	*world.Running
	client *world.Running // that calls a gateway; nil for a sidecar
}

// start starts all. It returns once the proxies are ready.
func start(ctx context.Context, t *testing.T) *mesh {
	t.Helper()
	began := time.Now()
	m := &mesh{ctx: ctx, work: t.TempDir()}
	suite.LogTails(t, m.work)
	var err error
	m.cluster, err = cluster.Start(ctx, cluster.Options{})
	must.Succeed(t, err)
	t.Cleanup(m.cluster.Stop)
	must.Succeed(t, m.cluster.InstallCRDs(ctx, os.Getenv(crdsVar)))

	endpoints := ""
	outside := ""
	for i, name := range []string{"old", "new", "client"} {
		ip := fmt.Sprintf("10.10.3.%d", i+1)
		outside += suite.PodYAML(name, "shop", ip, `"-http=8080", "-tcp=9000"`, fmt.Sprintf("version: %s, %s", name, suite.Outside))
		if name != "client" {
			endpoints += endpointYAML("server", name, ip)
		}
	}
	groups := []*group{{yaml: outside}, {delta: true}, {}, {delta: true, agents: true}, {agents: true}}
	for i := range sidecars {
		name, ip := fmt.Sprintf("web-%d", i), fmt.Sprintf("10.10.1.%d", i+1)
		groups[1+i%2].yaml += suite.PodYAML(name, "shop", ip, `"-http=8080"`, suite.Sidecar)
		endpoints += endpointYAML("web", name, ip)
	}
	for i := range gateways {
		groups[3+i%2].yaml += suite.GatewayPodYAML(fmt.Sprintf("gateway-%d", i), "edge", fmt.Sprintf("10.10.2.%d", i+1), "role: gateway")
	}
	text := settings + endpoints + outside
	for _, g := range groups[1:] {
		text += injected.Replace(g.yaml)
	}
	must.Succeed(t, m.cluster.ApplyParallel(ctx, []byte(text), 8))
	t.Logf("an API server with all objects after %s", time.Since(began).Round(time.Millisecond))

	var all errgroup.Group
	for i := range m.replicas {
		all.Go(func() error { return m.serve(t, i) })
	}
	must.Succeed(t, all.Wait())
	plain := m.service(t, func(p *controlplane.Process) string { return p.GRPC })
	agent := m.agent(t)
	for _, g := range groups {
		m.run(t, g, plain, agent)
	}
	for _, p := range m.proxies {
		must.Succeed(t, p.Proxy.Ready(ctx))
	}
	t.Logf("two replicas and %d proxies after %s", len(m.proxies), time.Since(began).Round(time.Millisecond))
	return m
}

// serve starts a replica, as its Pod would, and adds it to the endpoints of the Service.
func (m *mesh) serve(t *testing.T, i int) error {
	name, ip := replica(i)
	work := filepath.Join(m.work, name)
	if err := errors.Join(os.Mkdir(work, 0o755), network.AddAddress(netip.MustParseAddr(ip))); err != nil {
		return err
	}
	port, err := freeport.Pick(m.ctx, ip)
	if err != nil {
		return err
	}
	p, err := controlplane.Start(m.ctx, controlplane.Options{
		Binary: os.Getenv(suite.PilotVar), Kubeconfig: m.cluster.Kubeconfig(), Host: ip, WorkDir: work,
		Args: []string{"--secureGRPCAddr", net.JoinHostPort(ip, port), "--ctrlz_port=0"},
		Env: []string{
			"POD_NAME=" + name, "POD_NAMESPACE=istio-system", "INJECT_ENABLED=false", "PILOT_ENABLE_CONFIG_DISTRIBUTION_STATUS=true",
		},
	})
	if err != nil {
		return err
	}
	suite.LogTails(t, work)
	t.Cleanup(p.Stop)
	m.replicas[i] = p
	return m.endpoint(i, true)
}

// endpoint writes the endpoint of a replica.
func (m *mesh) endpoint(i int, ready bool) error {
	name, ip := replica(i)
	_, port, err := net.SplitHostPort(m.replicas[i].SecureGRPC)
	if err != nil {
		return err
	}
	return m.cluster.Apply(m.ctx, []byte(replicaYAML(name, ip, port, ready)))
}

// replica returns the name and the address of a replica.
func replica(i int) (name, ip string) {
	return fmt.Sprintf("istiod-%d", i), fmt.Sprintf("10.10.9.%d", 10+i)
}

// service listens on an address that leads to one of the replicas that run, as the Service's would. It returns the
// address.
func (m *mesh) service(t *testing.T, address func(*controlplane.Process) string) string {
	t.Helper()
	var addresses []string
	for _, p := range m.replicas {
		addresses = append(addresses, address(p))
	}
	l, err := new(net.ListenConfig).Listen(m.ctx, "tcp", net.JoinHostPort(network.Gateway().String(), "0"))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.ctx))
	ended := make(chan error, 1)
	go func() {
		ended <- pods.Relay(ctx, l, func(ctx context.Context) (c net.Conn, err error) {
			first := int(m.turn.Add(1))
			for i := range addresses {
				if m.cut.Load() {
					return nil, errors.New("no replica is reached")
				}
				if c, err = new(net.Dialer).DialContext(ctx, "tcp", addresses[(first+i)%len(addresses)]); err == nil {
					return c, nil
				}
			}
			return nil, err
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// agent returns the agent of the gateways, with the roots and the tokens of the cluster.
func (m *mesh) agent(t *testing.T) *proxy.Agent {
	t.Helper()
	core := m.cluster.Client().CoreV1()
	ca, err := core.Secrets("istio-system").Get(m.ctx, "istio-ca-secret", metav1.GetOptions{})
	must.Succeed(t, err)
	return &proxy.Agent{
		Binary: os.Getenv(suite.AgentVar), Discovery: m.service(t, func(p *controlplane.Process) string { return p.SecureGRPC }),
		Roots: ca.Data["root-cert.pem"],
		Token: func(ctx context.Context, namespace, account string) ([]byte, error) {
			pod, err := core.Pods(namespace).Get(ctx, account, metav1.GetOptions{}) // it has the name of its account
			if err != nil {
				return nil, err
			}
			made, err := core.ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
				Spec: authenticationv1.TokenRequestSpec{
					Audiences:      []string{"istio-ca"},
					BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return nil, err
			}
			return []byte(made.Status.Token), nil
		},
	}
}

// run starts the pods of a group.
func (m *mesh) run(t *testing.T, g *group, plain string, agent *proxy.Agent) {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "pods.yaml"), []byte(g.yaml), 0o644))
	directory, err := world.Read(dir)
	must.Succeed(t, err)
	o := world.Options{Directory: directory, Envoy: os.Getenv(suite.EnvoyVar), XDS: plain, Delta: g.delta, WorkDir: m.work}
	if g.agents {
		o.Agent = agent
	}
	w, err := suite.StartPods(network, o)
	must.Succeed(t, err)
	t.Cleanup(w.Stop)
	for _, p := range directory.Pods {
		switch r := w.Pod(p.Node.Name); {
		case r.Proxy == nil && p.Node.Name == "client":
			m.client = r
		case r.Proxy != nil && g.agents:
			m.proxies = append(m.proxies, &member{r, m.client})
		case r.Proxy != nil:
			m.proxies = append(m.proxies, &member{Running: r})
		}
	}
}

// wait runs the command wait, which asks one replica after the other, and returns what it prints and its exit code.
func (m *mesh) wait(t *testing.T, args ...string) (string, int) {
	t.Helper()
	m.asked++
	return m.waitAt(t, m.asked%len(m.replicas), args...)
}

// waitAt is wait at one replica.
func (m *mesh) waitAt(t *testing.T, i int, args ...string) (string, int) {
	t.Helper()
	args = append([]string{"wait", "--address", m.replicas[i].Monitoring, "--kubeconfig", m.cluster.Kubeconfig()}, args...)
	cmd := exec.CommandContext(m.ctx, os.Getenv(suite.PilotVar), args...)
	cmd.Env = []string{"HOME=" + m.work}
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// file writes objects to a file, and returns its path.
func (m *mesh) file(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(m.work, "objects.yaml")
	suite.Write(t, path, yaml)
	return path
}

// apply applies objects, without waiting.
func (m *mesh) apply(t *testing.T, yaml string) (file string) {
	t.Helper()
	must.Succeed(t, m.cluster.Apply(m.ctx, []byte(yaml)))
	return m.file(t, yaml)
}

// change applies objects, and waits until they are in force.
func (m *mesh) change(t *testing.T, yaml string) {
	t.Helper()
	m.awaits(t, "-f", m.apply(t, yaml))
}

// remove deletes objects, and waits until that is in force.
func (m *mesh) remove(t *testing.T, yaml string) {
	t.Helper()
	must.Succeed(t, m.cluster.Delete(m.ctx, []byte(yaml)))
	m.awaits(t, "-f", m.file(t, yaml), "--deleted")
}

// awaits ends the test unless wait ends with 0 and says that each object is in force.
func (m *mesh) awaits(t *testing.T, args ...string) {
	t.Helper()
	began := time.Now()
	text, code := m.wait(t, append(args, "--timeout", "60s")...)
	if code != 0 || strings.Contains(text, "warning") {
		t.Fatalf("wait %q ends with %d: %s", args, code, text)
	}
	t.Logf("after %s: %s", time.Since(began).Round(time.Millisecond), strings.TrimSpace(text))
}

// hold stops a proxy until the test calls the function that it returns.
func (m *mesh) hold(t *testing.T, p *member) (release func()) {
	t.Helper()
	must.Succeed(t, p.Proxy.Signal(syscall.SIGSTOP))
	release = func() { _ = p.Proxy.Signal(syscall.SIGCONT) }
	t.Cleanup(release)
	return release
}
