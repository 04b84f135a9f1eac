package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/istiod-lite/istiod-lite/pilot/agent/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestWithoutEnvoy: for applications that speak xDS themselves, the agent writes their bootstrap and serves them until
// it is told to end.
func TestWithoutEnvoy(t *testing.T) {
	dir, err := os.MkdirTemp("", "a") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	port := freePort(t)
	c, err := config.Read(config.Source{Dir: dir, Version: "1.31.1", Environ: []string{
		"POD_NAME=web-0", "POD_NAMESPACE=a", "SERVICE_ACCOUNT=web", "INSTANCE_IP=127.0.0.1", "ISTIO_META_CLUSTER_ID=Kubernetes", "DISABLE_ENVOY=true", "OUTPUT_CERTS=certs",
		fmt.Sprintf(`PROXY_CONFIG={"discoveryAddress":"127.0.0.1:%d","statusPort":%d}`, freePort(t), port),
	}})
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(dir, "var/run/secrets/istio/root-cert.pem")
	if err := os.MkdirAll(filepath.Dir(roots), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(roots, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := New(Options{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "etc/istio/proxy/grpc-bootstrap.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Servers []struct {
			URI string `json:"server_uri"`
		} `json:"xds_servers"`
		Node struct {
			ID       string         `json:"id"`
			Metadata map[string]any `json:"metadata"`
		} `json:"node"`
		Providers map[string]struct{ Config map[string]string } `json:"certificate_providers"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Servers) != 1 || got.Servers[0].URI != "unix://"+filepath.Join(dir, "etc/istio/proxy/XDS") || got.Node.ID != "sidecar~127.0.0.1~web-0.a~a.svc.cluster.local" ||
		got.Node.Metadata["GENERATOR"] != "grpc" || got.Providers["default"].Config["private_key_file"] != filepath.Join(dir, "certs/key.pem") {
		t.Errorf("bootstrap %s", text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/stats/prometheus", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.XDSSocket); err == nil {
		t.Error("the socket is still there")
	}
}

// TestNewFails: what cannot be had is named.
func TestNewFails(t *testing.T) {
	c, err := config.Read(config.Source{Dir: t.TempDir(), Version: "1", Environ: []string{"POD_NAME=web-0", "POD_NAMESPACE=a", "INSTANCE_IP=127.0.0.1", `PROXY_CONFIG={"discoveryAddress":"istiod","statusPort":0}`}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Config: c}); err == nil || !strings.Contains(err.Error(), `address "istiod" of the control plane`) {
		t.Error(err)
	}
}
