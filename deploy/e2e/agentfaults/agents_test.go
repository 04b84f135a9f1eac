package agentfaults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

const (
	requestTimeout = 15 * time.Second
	host           = "server.b.svc.cluster.local"
)

// meshYAML has a server in mode STRICT, and callers by a forward proxy, whose requests have a connection each.
var meshYAML = suite.NamespacesYAML("istio-system", "b") +
	suite.PodYAML("server", "b", "10.10.0.21", `"-http=8080"`, suite.OwnAgent) + suite.PodYAML("caller", "b", "10.10.0.22", "",
	suite.OwnAgent) + suite.PodYAML("late", "b", "10.10.0.23", "", suite.OwnAgent) +
	suite.PodYAML("crashed", "b", "10.10.0.24", "", suite.OwnAgent) +
	suite.PeerAuthenticationYAML("STRICT") + suite.UncapturedYAML +
	`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: b}
spec:
  host: server.b.svc.cluster.local
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}
---
`

// sidecar is a running agent of one pod.
type sidecar struct {
	m    *suite.Mesh
	pod  *pods.Pod
	dir  string
	disk *os.Root // the root of a small file system; optional
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// full is a folder of an agent that is a small file system of its own.
const full = "certs"

// start starts an agent in a pod, as injection would, with more variables.
func start(t *testing.T, m *suite.Mesh, name string, disk bool, environ ...string) *sidecar {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // the path of a socket is short
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &sidecar{m: m, pod: m.World.Pod(name).Location.(*pods.Pod), dir: dir, done: make(chan struct{})}
	for _, d := range []string{"var/run/secrets/tokens", "var/run/secrets/istio", full} {
		must.Succeed(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	token, err := exec.CommandContext(t.Context(), os.Getenv(suite.PilotVar), "token", "b", name, "--stateDir", m.State).Output()
	must.Succeed(t, err)
	roots, err := os.ReadFile(filepath.Join(m.State, "ca", "ca", "root-cert.pem"))
	must.Succeed(t, err)
	suite.Write(t, filepath.Join(dir, "var/run/secrets/tokens/istio-token"), strings.TrimSpace(string(token)))
	suite.Write(t, filepath.Join(dir, "var/run/secrets/istio/root-cert.pem"), string(roots))
	s.cmd = exec.CommandContext(context.Background(), "/proc/self/exe")
	s.cmd.Dir = dir
	s.cmd.Env = append([]string{
		clockVar + "=" + filepath.Join(dir, "clock"), "PATH=" + os.Getenv("PATH"), "CA_ADDR=" + m.Pilot.SecureGRPC,
		"ISTIOD_SAN=istiod.istio-system.svc", "TRUST_DOMAIN=cluster.local",
		"POD_NAME=" + name, "POD_NAMESPACE=b", "SERVICE_ACCOUNT=" + name, "INSTANCE_IP=" + s.pod.Addr().String(),
		fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":%q}`, name),
		"ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_INTERCEPTION_MODE=NONE", "TERMINATION_DRAIN_DURATION_SECONDS=0",
		fmt.Sprintf(
			`PROXY_CONFIG={"discoveryAddress":%q,"binaryPath":%q,"concurrency":1,"proxyStatsMatcher":{"inclusionSuffixes":["ssl.handshake"]}}`,
			m.Pilot.SecureGRPC, os.Getenv(suite.EnvoyVar)),
	}, environ...)
	suite.LogTails(t, dir)
	t.Cleanup(func() {
		if s.cmd.Process == nil {
			return
		}
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		<-s.done
		if s.disk != nil {
			_ = s.disk.Close()
		}
	})
	s.launch(t, disk)
	return s
}

// launch starts the process, and waits until Envoy is ready.
func (s *sidecar) launch(t *testing.T, disk bool) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Succeed(t, err)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.pod.Do(func() error {
		if disk {
			if err := s.mount(); err != nil {
				return err
			}
		}
		return s.cmd.Start()
	}); err != nil {
		t.Fatal(err)
	}
	cmd, done := s.cmd, s.done
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(done)
	}()
	suite.Eventually(t, s.pod.Name()+" is ready", func() bool {
		select {
		case <-done:
			t.Fatalf("the agent of %s has ended", s.pod.Name())
		default:
		}
		_, err := s.get(15021, "/healthz/ready")
		return err == nil
	})
}

// crash ends the agent without a chance to clean up, and its Envoy with it, and starts it again where it was.
func (s *sidecar) crash(t *testing.T) {
	t.Helper()
	must.Succeed(t, s.cmd.Process.Kill())
	<-s.done
	before := s.cmd
	s.cmd, s.done = exec.CommandContext(context.Background(), before.Path), make(chan struct{})
	s.cmd.Dir, s.cmd.Env = before.Dir, before.Env
	suite.Eventually(t, "its Envoy has ended too",
		func() bool { _, err := s.get(15000, "/ready"); return errors.Is(err, syscall.ECONNREFUSED) })
	s.launch(t, false)
}

// mount gives the calling thread a mount namespace of its own, with a small file system, and has the thread end with
// its goroutine. What it starts stays there.
func (s *sidecar) mount() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	folder := filepath.Join(s.dir, full)
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=256k"); err != nil {
		return fmt.Errorf("mount a file system: %w", err)
	}
	var err error
	s.disk, err = os.OpenRoot(folder)
	return err
}

// set sets the agent's clock ahead.
func (s *sidecar) set(t *testing.T, ahead time.Duration) {
	t.Helper()
	suite.Write(t, filepath.Join(s.dir, "clock"), ahead.String())
}

// said reports whether the agent has logged a text.
func (s *sidecar) said(text string) bool {
	log, _ := os.ReadFile(filepath.Join(s.dir, "agent.log"))
	return strings.Contains(string(log), text)
}

func (s *sidecar) client() *http.Client {
	return &http.Client{Timeout: requestTimeout, Transport: &http.Transport{DialContext: s.pod.DialContext, DisableKeepAlives: true}}
}

// get asks a port of the agent's or its Envoy's.
func (s *sidecar) get(port int, path string) (*http.Response, error) {
	resp, err := s.client().Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, errors.New(resp.Status)
	}
	return resp, nil
}

// serial returns the number of the certificate that Envoy shows.
func (s *sidecar) serial(t *testing.T) string {
	t.Helper()
	resp, err := s.get(15000, "/certs")
	must.Succeed(t, err)
	defer resp.Body.Close()
	var all struct {
		Certificates []struct {
			Chain []struct {
				Serial string `json:"serial_number"`
			} `json:"cert_chain"`
		} `json:"certificates"`
	}
	must.Succeed(t, json.NewDecoder(resp.Body).Decode(&all))
	for _, c := range all.Certificates {
		if len(c.Chain) > 0 {
			return c.Chain[0].Serial
		}
	}
	return ""
}

// renewed waits until Envoy shows another certificate than the one of this number.
func (s *sidecar) renewed(t *testing.T, before string) {
	t.Helper()
	suite.Eventually(t, s.pod.Name()+" shows another certificate", func() bool { now := s.serial(t); return now != "" && now != before })
}

// count returns a counter of Envoy's.
func (s *sidecar) count(t *testing.T, name string) int {
	t.Helper()
	resp, err := s.get(15000, "/stats?filter=^"+name+"$")
	must.Succeed(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	_, value, _ := strings.Cut(strings.TrimSpace(string(text)), ": ")
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s: %q", name, text)
	}
	return n
}

// call has the pod's Envoy call the server.
func (s *sidecar) call(client *http.Client) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:7070/", nil)
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
}
