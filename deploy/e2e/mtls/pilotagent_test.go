//go:build compat

package mtls

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

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestPilotAgent runs stock Envoys under Istio's own agent, with its own bootstrap. They get certificates, and serve
// and call with mutual TLS only, also beside proxies without that agent.
func TestPilotAgent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	m := start(ctx, t, meshYAML(ports...)+agentYAML)
	suite.Write(t, filepath.Join(m.Dir, "mode.yaml"), policies(mode("STRICT"), "", ""))
	for _, name := range []string{"server", "caller"} {
		m.supervise(t, name)
	}
	from := m.World.Pod("caller").Location
	client := &http.Client{Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
	get := func(address, host string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			return err
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", host, resp.Status)
		}
		return nil
	}
	for _, host := range []string{"server.b.svc.cluster.local", "echo.a.svc.cluster.local"} {
		suite.Eventually(t, "an answer of "+host, func() bool {
			err := get("127.0.0.1:7070", host)
			if err != nil && ctx.Err() != nil {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	if err := get("10.10.0.21:8443", "server.b"); err == nil {
		t.Error("plaintext is served in mode STRICT")
	}
}

// supervise starts Istio's agent in a pod, as its injection would.
func (m mesh) supervise(t *testing.T, name string) {
	t.Helper()
	work := t.TempDir()
	for _, dir := range []string{"var/run/secrets/tokens", "var/run/secrets/istio", "etc/istio/proxy", "var/lib/istio/data"} {
		must.Succeed(t, os.MkdirAll(filepath.Join(work, dir), 0o755))
	}
	token, err := exec.CommandContext(t.Context(), os.Getenv(suite.PilotVar), "token", "b", name, "--stateDir", m.State).Output()
	must.Succeed(t, err)
	suite.Write(t, filepath.Join(work, "var/run/secrets/tokens/istio-token"), strings.TrimSpace(string(token)))
	suite.Write(t, filepath.Join(work, "var/run/secrets/istio/root-cert.pem"), string(m.Roots))
	tools := filepath.Dir(os.Getenv("PILOT_AGENT"))
	host, _, err := net.SplitHostPort(m.Pilot.SecureGRPC)
	must.Succeed(t, err)
	cmd := exec.CommandContext(context.Background(), os.Getenv("PILOT_AGENT"), "proxy", "sidecar", "--domain", "b.svc.cluster.local",
		"--proxyLogLevel=warning", "--log_output_level=default:info")
	cmd.Dir = work
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "PILOT_CERT_PROVIDER=istiod", "CA_ADDR=" + m.Pilot.SecureGRPC, "ISTIOD_SAN=istiod.istio-system.svc",
		"CLOUD_PLATFORM=none",
		"POD_NAME=" + name, "POD_NAMESPACE=b", "SERVICE_ACCOUNT=" + name, "INSTANCE_IP=" + m.World.Pod(name).Node.Addr.String(),
		"HOST_IP=" + host,
		"ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_WORKLOAD_NAME=" + name, "ISTIO_META_INTERCEPTION_MODE=NONE", "TRUST_DOMAIN=cluster.local",
		fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q}`, name), "TERMINATION_DRAIN_DURATION_SECONDS=0", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true",
		fmt.Sprintf(`PROXY_CONFIG={"discoveryAddress":%q,"binaryPath":%q,"proxyBootstrapTemplatePath":%q,"concurrency":1,`+
			`"proxyStatsMatcher":{"inclusionRegexps":[".*"]}}`,
			m.Pilot.SecureGRPC, os.Getenv(suite.EnvoyVar), filepath.Join(tools, "pilot-agent-bootstrap.json")),
	}
	log, err := os.Create(filepath.Join(work, "agent.log"))
	must.Succeed(t, err)
	suite.LogTails(t, work)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.Succeed(t, m.World.Pod(name).Location.(interface{ Start(*exec.Cmd) error }).Start(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
	})
}
