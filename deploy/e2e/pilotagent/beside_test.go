package pilotagent

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// probersJSON makes agents probe their applications, in the form of injection. Port 9 has no listener.
const probersJSON = `{"/app-health/app/readyz":{"httpGet":{"path":"/","port":8080},"timeoutSeconds":15},` +
	`"/app-health/app/livez":{"tcpSocket":{"port":9}}}`

// testBesideEnvoy requests what agents serve beside Envoy: names of the mesh, probes, and metrics as Prometheus reads
// them.
func (m *mesh) testBesideEnvoy(t *testing.T) {
	for name, want := range map[string]string{"named": "10.96.0.9", "named.b.svc.cluster.local": "10.96.0.9"} {
		conn, err := m.World.Pod("caller").Location.DialContext(t.Context(), "tcp", "127.0.0.1:15053")
		must.Succeed(t, err)
		client := &dns.Client{Timeout: requestTimeout}
		resp, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), &dns.Conn{Conn: conn})
		if err != nil || len(resp.Answer) != 1 || resp.Answer[0].(*dns.A).A.String() != want {
			t.Errorf("%s resolves to %v, %v; want %s", name, resp, err, want)
		}
		_ = conn.Close()
	}
	if code, text := m.ask(t, "caller", 15020, "/debug/ndsz"); code != http.StatusOK || !strings.Contains(text, "named.b.svc.cluster.local") {
		t.Errorf("the name table: %d, %.200s", code, text)
	}
	if code, text := m.ask(t, "first", 15020, "/app-health/app/readyz"); code != http.StatusOK {
		t.Errorf("the application is not well: %d, %s", code, text)
	}
	if code, text := m.ask(t, "first", 15020, "/app-health/app/livez"); code != http.StatusInternalServerError ||
		!strings.Contains(text, "refused") {
		t.Errorf("nobody listens: %d, %s", code, text)
	}
	_, text := m.ask(t, "first", 15020, "/stats/prometheus")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	for _, name := range []string{"envoy_server_live", "istio_agent_go_goroutines", "istio_agent_scrapes_total",
		"istio_agent_dns_requests_total"} {
		if families[name] == nil {
			t.Errorf("the metrics have no %s: %v", name, err)
		}
	}
	if err != nil {
		t.Errorf("Prometheus does not read the metrics: %v", err)
	}
}

// testCrowd: a pod that opens many connections to the status port of another is refused at some point, and other pods
// are still served.
func (m *mesh) testCrowd(t *testing.T) {
	const address = "10.10.0.21:15020"
	get := func(pod string) (*http.Transport, error) {
		transport := &http.Transport{DialContext: m.World.Pod(pod).Location.DialContext}
		resp, err := (&http.Client{Transport: transport, Timeout: requestTimeout}).Get("http://" + address + "/healthz/ready")
		if err != nil {
			return nil, err
		}
		return transport, errors.Join(resp.Body.Close(), statusError(resp))
	}
	for n := 0; ; n++ {
		open, err := get("second")
		if err != nil {
			t.Logf("%d connections, then %v", n, err)
			if n == 0 {
				t.Error(err)
			}
			break
		}
		defer open.CloseIdleConnections()
		if n > 1000 {
			t.Fatal("as many connections as a pod wants are served")
		}
	}
	other, err := get("caller")
	if err != nil {
		t.Fatalf("another pod: %v", err)
	}
	other.CloseIdleConnections()
}

func statusError(resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
