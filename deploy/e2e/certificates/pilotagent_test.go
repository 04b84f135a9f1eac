//go:build compat

package certificates

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/istiod-lite/istiod-lite/citadel/pki"
)

const (
	secretType  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
)

// TestPilotAgent has Istio's own agent get a certificate, and configuration, by a token of a real API server, which is
// bound to its pod. A client in Envoy's place asks the agent for both. By a token of another audience, and once the pod
// is gone, it gets no certificate.
func TestPilotAgent(t *testing.T) {
	w := newWorld(t, "--set", "env.ISTIOD_CUSTOM_HOST=127.0.0.1")
	w.apply(pod("a", "web-0", "web", "n1"))
	server := w.launch("istiod-0").ready()
	s, err := w.Client().CoreV1().Secrets(root).Get(w.ctx, "istio-ca-secret", metav1.GetOptions{})
	w.must(err)
	roots := s.Data["root-cert.pem"]

	good := superviseAgent(w, server.secure, roots, w.token("a", "web", "web-0", "istio-ca"))
	var chain, trusted []byte
	w.eventually("a certificate of the agent", func() error {
		own, err := good.secret(w.ctx, "default")
		if err != nil {
			return err
		}
		cas, err := good.secret(w.ctx, "ROOTCA")
		chain, trusted = own.GetTlsCertificate().GetCertificateChain().GetInlineBytes(), cas.GetValidationContext().GetTrustedCa().GetInlineBytes()
		return err
	})
	list, err := pki.ParseCertificates(chain)
	w.must(err)
	if got := list[0].URIs; len(got) != 1 || got[0].String() != "spiffe://cluster.local/ns/a/sa/web" {
		t.Errorf("the certificate is that of %v", got)
	}
	if strings.TrimSpace(string(trusted)) != strings.TrimSpace(string(roots)) {
		t.Errorf("the agent hands out the roots\n%s\nof\n%s", trusted, roots)
	}
	w.eventually("clusters through the agent", func() error { return good.clusters(w.ctx, "web-0") })

	good.stop()

	refused := func(what, token string) {
		t.Helper()
		bad := superviseAgent(w, server.secure, roots, token)
		defer bad.stop()
		w.eventually(what+" is refused", func() error {
			if !strings.Contains(bad.log(), codes.Unauthenticated.String()) {
				return fmt.Errorf("the agent says: %s", bad.log())
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		if _, err := bad.secret(ctx, "default"); err == nil {
			t.Errorf("%s: the agent has a certificate", what)
		}
	}
	refused("a token of another audience", w.token("a", "web", "web-0", "vault"))
	gone := w.token("a", "web", "web-0", "istio-ca")
	w.must(w.Delete(w.ctx, []byte(pod("a", "web-0", "web", "n1"))))
	w.eventually("the pod's end is known", func() error {
		if _, err := connect(t, server.secure, w.pool(roots), gone).certificate(w.ctx, ""); status.Code(err) != codes.Unauthenticated {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	refused("a token of a pod that is gone", gone)
}

// pilotAgent is Istio's own agent, without an Envoy.
type pilotAgent struct {
	w        *world
	dir      string
	sds, ads *grpc.ClientConn
	stop     func() // may be called again
}

// superviseAgent starts an agent as injection would.
func superviseAgent(w *world, secure string, roots []byte, token string) *pilotAgent {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "agent") // the path of a socket is short
	w.must(err)
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, d := range []string{"var/run/secrets/tokens", "var/run/secrets/istio", "etc/istio/proxy", "var/lib/istio/data"} {
		w.must(os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	w.must(os.WriteFile(filepath.Join(dir, "var/run/secrets/tokens/istio-token"), []byte(token), 0o600))
	w.must(os.WriteFile(filepath.Join(dir, "var/run/secrets/istio/root-cert.pem"), roots, 0o600))
	cmd := exec.CommandContext(context.Background(), os.Getenv("PILOT_AGENT"), "proxy", "sidecar", "--domain", "a.svc.cluster.local", "--log_output_level=default:info")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "DISABLE_ENVOY=true", "PILOT_CERT_PROVIDER=istiod", "CA_ADDR=" + secure, "ISTIOD_SAN=istiod.istio-system.svc", "CLOUD_PLATFORM=none",
		"POD_NAME=web-0", "POD_NAMESPACE=a", "SERVICE_ACCOUNT=web", "INSTANCE_IP=127.0.0.1", "ISTIO_META_CLUSTER_ID=Kubernetes", "TRUST_DOMAIN=cluster.local",
		fmt.Sprintf(`PROXY_CONFIG={"discoveryAddress":%q,"statusPort":%d}`, secure, freePort(w)),
	}
	out, err := os.Create(filepath.Join(dir, "log"))
	w.must(err)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.must(cmd.Start())
	a := &pilotAgent{w: w, dir: dir}
	a.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
		if w.t.Failed() {
			w.t.Logf("the agent said:\n%s", a.log())
		}
	})
	w.t.Cleanup(a.stop)
	for path, conn := range map[string]**grpc.ClientConn{"var/run/secrets/workload-spiffe-uds/socket": &a.sds, "etc/istio/proxy/XDS": &a.ads} {
		*conn, err = grpc.NewClient("unix://"+filepath.Join(dir, path), grpc.WithTransportCredentials(insecure.NewCredentials()))
		w.must(err)
		w.t.Cleanup(func() { _ = (*conn).Close() })
	}
	return a
}

// freePort returns a port that nobody listens on, for the agent's status.
func freePort(w *world) int {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (a *pilotAgent) log() string {
	text, _ := os.ReadFile(filepath.Join(a.dir, "log"))
	return string(text)
}

func node(name string) *corev3.Node {
	return &corev3.Node{Id: "sidecar~127.0.0.1~" + name + ".a~a.svc.cluster.local"}
}

// secret returns a secret of the agent.
func (a *pilotAgent) secret(ctx context.Context, name string) (*tlsv3.Secret, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := secretv3.NewSecretDiscoveryServiceClient(a.sds).StreamSecrets(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node("web-0"), TypeUrl: secretType, ResourceNames: []string{name}}); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	m := &tlsv3.Secret{}
	if len(answer.Resources) != 1 {
		return nil, fmt.Errorf("%d secrets", len(answer.Resources))
	}
	if err := answer.Resources[0].UnmarshalTo(m); err != nil {
		return nil, err
	}
	return m, nil
}

// clusters asks the control plane for clusters, through the agent.
func (a *pilotAgent) clusters(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(a.ads).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node(name), TypeUrl: clusterType}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && len(answer.Resources) == 0 {
		return status.Error(codes.NotFound, "no clusters")
	}
	return err
}
