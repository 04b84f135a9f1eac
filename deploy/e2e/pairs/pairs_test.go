//go:build compat

package pairs

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestPilotAgentPairs: each agent with each control plane gives sidecars and gateways certificates and configuration.
// They use only mutual TLS, answer DNS from the name table, and serve the metrics of agent and Envoy.
func TestPilotAgentPairs(t *testing.T) {
	m := start(t)
	ours, theirs := os.Getenv(agentVar), os.Getenv(istioAgentVar)
	for _, pair := range []struct{ name, agent, server string }{
		{"IstiosAgentAndIstiod", theirs, m.istiod}, {"OurAgentAndOurs", ours, m.ours}, {"IstiosAgentAndOurs", theirs, m.ours},
		{"OurAgentAndIstiod", ours, m.istiod},
	} {
		t.Run(pair.name, func(t *testing.T) { m.pair(t, pair.agent, pair.server) })
	}
}

func (m *mesh) pair(t *testing.T, program, controlPlane string) {
	server, caller := m.start(t, program, controlPlane, "server", "sidecar"), m.start(t, program, controlPlane, "caller", "sidecar")
	gateway := m.start(t, program, controlPlane, "gateway", "router")
	all := []*agent{server, caller, gateway}
	for _, a := range all {
		a.ready(t)
	}
	for what, to := range map[string][2]string{"of the server": {"127.0.0.1:7070", "server.b.svc.cluster.local"},
		"through the gateway": {"10.10.0.23:8000", "entry.example.com"}} {
		var err error
		suite.Eventually(t, "an answer "+what, func() bool {
			var name string
			name, err = get(t.Context(), caller, to[0], to[1])
			return err == nil && name == "server"
		})
	}
	// The port is open, and refuses plaintext.
	if _, err := get(t.Context(), caller, "10.10.0.21:8443", "server.b"); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("plaintext to a server in mode STRICT: %v", err)
	}
	for _, a := range all {
		if _, text := a.ask(15000, "/certs"); !strings.Contains(text, "spiffe://cluster.local/ns/b/sa/"+a.pod) {
			t.Errorf("the Envoy of %s has certificates %s", a.pod, text)
		}
		if code, text := a.ask(15020, "/healthz/ready"); code != http.StatusOK {
			t.Errorf("%s: the agent is not ready: %d, %s", a.pod, code, text)
		}
		_, text := a.ask(15020, "/stats/prometheus")
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil || families["envoy_server_live"] == nil || families["istio_agent_cert_expiry_seconds"] == nil ||
			families["istio_agent_xds_proxy_requests"] == nil {
			t.Errorf("the merged metrics of %s: %v, %.300s", a.pod, err, text)
		}
	}
	suite.Eventually(t, "a name of the mesh", func() bool {
		conn, err := caller.dial(t.Context(), "udp", 15053)
		must.Succeed(t, err)
		defer conn.Close()
		resp, _, err := (&dns.Client{Timeout: requestTimeout}).ExchangeWithConn(new(dns.Msg).SetQuestion("named.b.svc.cluster.local.", dns.TypeA),
			&dns.Conn{Conn: conn})
		if err != nil || len(resp.Answer) != 1 {
			return false
		}
		a, ok := resp.Answer[0].(*dns.A)
		return ok && a.A.Equal(net.IPv4(10, 96, 0, 9))
	})
	for _, a := range all {
		must.Succeed(t, a.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, a := range all {
		<-a.done
		if code := a.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the agent of %s ended with %d", a.pod, code)
		}
	}
}

// get sends a request from the pod of an agent and returns who answered.
func get(ctx context.Context, a *agent, address, host string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	req.Host = host
	resp, err := a.client().Do(req)
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
