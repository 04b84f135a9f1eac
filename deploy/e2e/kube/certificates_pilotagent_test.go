//go:build compat

package kube

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
)

const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// data is where the agent writes its certificate, below its own folder.
const data = "var/lib/istio/data"

// TestPilotAgent runs Istio's own agent with a token of a real API server that is bound to its pod. The agent gets a
// certificate, which it writes to files, as for gRPC without a proxy, and configuration, which a client requests
// instead of Envoy. With a token of another audience, and once the pod is gone, it gets no certificate.
func TestPilotAgent(t *testing.T) {
	w := newWorld(t, "--set", "env.ISTIOD_CUSTOM_HOST=127.0.0.1")
	w.Write(pod("a", "web-0", "web", "n1"))
	server := w.launch("istiod-0").Ready()
	s, err := w.Client().CoreV1().Secrets(root).Get(w.Ctx, "istio-ca-secret", metav1.GetOptions{})
	w.Must(err)
	roots := s.Data["root-cert.pem"]

	good := superviseAgent(w, server.SecureGRPC, roots, w.token("a", "web", "web-0", "istio-ca"))
	var list []*x509.Certificate
	var trusted []byte
	w.Eventually("a certificate of the agent", func() (err error) {
		chain, err := good.output("cert-chain.pem")
		if err == nil {
			trusted, err = good.output("root-cert.pem")
		}
		if err == nil {
			list, err = pki.ParseCertificates(chain)
		}
		if err == nil && len(list) == 0 {
			err = errors.New("it is empty")
		}
		return err
	})
	if got := list[0].URIs; len(got) != 1 || got[0].String() != "spiffe://cluster.local/ns/a/sa/web" {
		t.Errorf("the certificate is that of %v", got)
	}
	if strings.TrimSpace(string(trusted)) != strings.TrimSpace(string(roots)) {
		t.Errorf("the agent hands out the roots\n%s\nof\n%s", trusted, roots)
	}
	w.Eventually("clusters through the agent", func() error { return good.clusters(w.Ctx, "web-0") })

	good.stop()

	refused := func(what, token string) {
		t.Helper()
		bad := superviseAgent(w, server.SecureGRPC, roots, token)
		defer bad.stop()
		w.Eventually(what+" is refused", func() error {
			if !strings.Contains(bad.log(), codes.Unauthenticated.String()) {
				return fmt.Errorf("the agent says: %s", bad.log())
			}
			return nil
		})
		if _, err := bad.output("cert-chain.pem"); err == nil {
			t.Errorf("%s: the agent has a certificate", what)
		}
	}
	refused("a token of another audience", w.token("a", "web", "web-0", "vault"))
	gone := w.token("a", "web", "web-0", "istio-ca")
	w.Must(w.Delete(w.Ctx, []byte(pod("a", "web-0", "web", "n1"))))
	w.Eventually("the pod's end is known", func() error {
		if _, err := dial(t, server.SecureGRPC, w.pool(roots), gone).certificate(w.Ctx, ""); status.Code(err) != codes.Unauthenticated {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	refused("a token of a pod that is gone", gone)
}

// pilotAgent is Istio's own agent without an Envoy.
type pilotAgent struct {
	w    *world
	dir  string
	ads  *grpc.ClientConn
	stop func() // may be called again
}

// superviseAgent starts an agent as injection would.
func superviseAgent(w *world, secure string, roots []byte, token string) *pilotAgent {
	w.T.Helper()
	dir, err := os.MkdirTemp("", "agent") // the path of a socket must be short
	w.Must(err)
	w.T.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, d := range []string{"var/run/secrets/tokens", "var/run/secrets/istio", "etc/istio/proxy", data} {
		w.Must(os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	w.Must(os.WriteFile(filepath.Join(dir, "var/run/secrets/tokens/istio-token"), []byte(token), 0o600))
	w.Must(os.WriteFile(filepath.Join(dir, "var/run/secrets/istio/root-cert.pem"), roots, 0o600))
	cmd := exec.CommandContext(context.Background(), os.Getenv("PILOT_AGENT"), "proxy", "sidecar", "--domain", "a.svc.cluster.local",
		"--log_output_level=default:info")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "DISABLE_ENVOY=true", "OUTPUT_CERTS=" + data, "PILOT_CERT_PROVIDER=istiod", "CA_ADDR=" + secure,
		"ISTIOD_SAN=istiod.istio-system.svc", "CLOUD_PLATFORM=none",
		"POD_NAME=web-0", "POD_NAMESPACE=a", "SERVICE_ACCOUNT=web", "INSTANCE_IP=127.0.0.1", "ISTIO_META_CLUSTER_ID=Kubernetes",
		"TRUST_DOMAIN=cluster.local",
		fmt.Sprintf(`PROXY_CONFIG={"discoveryAddress":%q,"statusPort":%d}`, secure, freePort(w)),
	}
	out, err := os.Create(filepath.Join(dir, "log"))
	w.Must(err)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.Must(cmd.Start())
	a := &pilotAgent{w: w, dir: dir}
	a.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
		if w.T.Failed() {
			w.T.Logf("the agent said:\n%s", a.log())
		}
	})
	w.T.Cleanup(a.stop)
	a.ads, err = grpc.NewClient("unix://"+filepath.Join(dir, "etc/istio/proxy/XDS"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	w.Must(err)
	w.T.Cleanup(func() { _ = a.ads.Close() })
	return a
}

// freePort returns a free port for the agent's status.
func freePort(w *world) int {
	w.T.Helper()
	text, err := freeport.Pick(w.Ctx, "127.0.0.1")
	w.Must(err)
	port, err := strconv.Atoi(text)
	w.Must(err)
	return port
}

func (a *pilotAgent) log() string {
	text, _ := os.ReadFile(filepath.Join(a.dir, "log"))
	return string(text)
}

func agentNode(name string) *corev3.Node {
	return &corev3.Node{Id: "sidecar~127.0.0.1~" + name + ".a~a.svc.cluster.local"}
}

// output returns a file that the agent has written.
func (a *pilotAgent) output(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(a.dir, data, name))
}

// clusters asks the control plane for clusters, through the agent.
func (a *pilotAgent) clusters(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(a.ads).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: agentNode(name), TypeUrl: clusterType}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && len(answer.Resources) == 0 {
		return status.Error(codes.NotFound, "no clusters")
	}
	return err
}
