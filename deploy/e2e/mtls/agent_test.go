package mtls

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/ca"
	"github.com/istiod-lite/istiod-lite/pilot/agent/sds"
	"github.com/istiod-lite/istiod-lite/pilot/agent/secrets"
	"github.com/istiod-lite/istiod-lite/pilot/agent/upstream"
	"github.com/istiod-lite/istiod-lite/pilot/agent/xdsproxy"
)

// agentYAML has two pods without a sidecar of the suite. Their Envoys listen where a Sidecar says, without redirection.
// Each request has its own connection, so that certificates are used.
var agentYAML = suite.UncapturedYAML +
	suite.PodYAML("server", "b", "10.10.0.21", `"-http=8080"`, suite.OwnAgent) +
	suite.PodYAML("caller", "b", "10.10.0.22", "", suite.OwnAgent) +
	`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: b}
spec:
  host: server.b.svc.cluster.local
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}
---
`

// besideEnvoy is the part of an agent that gives an Envoy certificates and configuration.
type besideEnvoy struct {
	xds     *xdsproxy.Proxy
	secrets *secrets.Manager
	metrics *prometheus.Registry
	renewed atomic.Int32 // certificates, the first included
	table   atomic.Pointer[string]
}

// TestAgentParts runs the agent's parts with real Envoys in mode STRICT, while certificates are renewed, and while the
// control plane is away longer than a renewal can wait. Each request has its own connection, and none fails.
func TestAgentParts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	m := start(ctx, t, meshYAML(ports...)+agentYAML)
	suite.Write(t, filepath.Join(m.Dir, "mode.yaml"), policies(mode("STRICT"), "", ""))
	server, caller := m.agent(t, "server"), m.agent(t, "caller")

	client := &http.Client{Transport: &http.Transport{DialContext: m.World.Pod("caller").Location.DialContext, DisableKeepAlives: true}}
	get := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:7070/", nil)
		if err != nil {
			return err
		}
		req.Host = "server.b.svc.cluster.local"
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s", resp.Status, body)
		}
		return nil
	}
	suite.Eventually(t, "an answer of the server", func() bool { return get() == nil })
	if !strings.Contains(*caller.table.Load(), "echo.a.svc.cluster.local") {
		t.Errorf("the name table has no echo: %q", *caller.table.Load())
	}

	stop := make(chan struct{})
	var asking sync.WaitGroup
	var asked atomic.Int32
	failed := make(chan error, 1)
	asking.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			if err := get(); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			asked.Add(1)
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	renewals := func(n int32) func() bool {
		from := []int32{server.renewed.Load(), caller.renewed.Load()}
		return func() bool { return server.renewed.Load() >= from[0]+n && caller.renewed.Load() >= from[1]+n }
	}
	suite.Eventually(t, "a renewal of both certificates", renewals(1))
	m.Pilot.Kill()
	suite.Eventually(t, "renewals that fail, and no stream", func() bool {
		return server.count(t, "istio_agent_num_failed_outgoing_requests") > 1 &&
			caller.count(t, "istio_agent_num_failed_outgoing_requests") > 1 &&
			server.xds.Connected() == 0 && caller.xds.Connected() == 0
	})
	must.Succeed(t, m.Pilot.Restart(ctx))
	suite.Eventually(t, "certificates once it is back", renewals(1))
	suite.Eventually(t, "streams once it is back", func() bool { return server.xds.Connected() == 1 && caller.xds.Connected() == 1 })
	close(stop)
	asking.Wait()
	select {
	case err := <-failed:
		t.Errorf("a request failed: %v", err)
	default:
		t.Logf("%d requests, each by a connection of its own", asked.Load())
	}
}

// count returns the sum of a metric over its labels.
func (a *besideEnvoy) count(t *testing.T, name string) (sum float64) {
	t.Helper()
	all, err := a.metrics.Gather()
	must.Succeed(t, err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// agent starts the parts of an agent for a pod, and its Envoy.
func (m mesh) agent(t *testing.T, name string) *besideEnvoy {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "agent") // the path of a socket is short
	must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(os.Chmod(dir, 0o755))
	token, err := exec.CommandContext(t.Context(), os.Getenv(suite.PilotVar), "token", "b", name, "--stateDir", m.State).Output()
	must(err)
	suite.Write(t, filepath.Join(dir, "token"), string(token))
	suite.Write(t, filepath.Join(dir, "root.pem"), string(m.Roots))

	a := &besideEnvoy{metrics: prometheus.NewRegistry()}
	to, err := upstream.New(upstream.Options{
		Address: m.Pilot.SecureGRPC, ServerName: "istiod.istio-system.svc", Roots: filepath.Join(dir, "root.pem"),
		Token: filepath.Join(dir, "token"),
	})
	must(err)
	signer, err := ca.New(ca.Options{Upstream: to, Registerer: a.metrics})
	must(err)
	// A minute is long enough for a control plane to come back on a busy machine; it is renewed after two seconds.
	a.secrets, err = secrets.New(secrets.Options{
		Signer: signer, ID: "spiffe://cluster.local/ns/b/sa/" + name, TTL: time.Minute, Grace: 58.0 / 60, Poll: 50 * time.Millisecond,
		MinBackoff: 100 * time.Millisecond, Registerer: a.metrics,
	})
	must(err)
	a.secrets.Subscribe(func(name string) {
		if name == secrets.Workload {
			a.renewed.Add(1)
		}
	})
	certificates, err := sds.New(sds.Options{Path: filepath.Join(dir, "sds"), Manager: a.secrets, Registerer: a.metrics})
	must(err)
	a.xds, err = xdsproxy.New(xdsproxy.Options{
		Path: filepath.Join(dir, "xds"), Upstream: to, Registerer: a.metrics,
		Handlers: map[string]func([]byte) error{
			xdsproxy.NameTableType:   func(b []byte) error { text := string(b); a.table.Store(&text); return nil },
			xdsproxy.ProxyConfigType: a.secrets.ProxyConfig,
		},
	})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{to.Run, a.secrets.Run, certificates.Run, a.xds.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })

	pod := m.World.Pod(name)
	node := pod.Node
	node.Interception = "NONE"
	suite.LogTails(t, dir)
	envoy, err := proxy.Start(proxy.Options{
		Binary: os.Getenv(suite.EnvoyVar), Location: pod.Location, Node: node, XDS: filepath.Join(dir, "xds"), SDS: filepath.Join(dir, "sds"),
		Delta: true, Admin: "127.0.0.1:15000", WorkDir: dir,
	})
	must(err)
	t.Cleanup(envoy.Stop)
	return a
}
