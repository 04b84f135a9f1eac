package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"

	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/leaks"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/agent/config"
	"github.com/istiod-lite/istiod-lite/pilot/agent/sds"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// freePort returns a port on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := freeport.Pick(t.Context(), "127.0.0.1")
	must.Succeed(t, err)
	return port
}

// TestWithoutEnvoy checks that the agent writes the bootstrap of an application that uses xDS itself, and serves the
// application until the agent is told to end.
func TestWithoutEnvoy(t *testing.T) {
	dir, port := short(t), freePort(t)
	c := proxyless(t, dir, "SERVICE_ACCOUNT=web", "ISTIO_META_CLUSTER_ID=Kubernetes", "OUTPUT_CERTS=certs",
		fmt.Sprintf(`PROXY_CONFIG={"discoveryAddress":"127.0.0.1:%s","statusPort":%s}`, freePort(t), port))
	a, err := New(Options{Config: c})
	must.Succeed(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "etc/istio/proxy/grpc-bootstrap.json"))
	must.Succeed(t, err)
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
	must.Succeed(t, json.Unmarshal(text, &got))
	if len(got.Servers) != 1 || got.Servers[0].URI != "unix://"+filepath.Join(dir, "etc/istio/proxy/XDS") ||
		got.Node.ID != "sidecar~127.0.0.1~web-0.a~a.svc.cluster.local" ||
		got.Node.Metadata["GENERATOR"] != "grpc" || got.Providers["default"].Config["private_key_file"] != filepath.Join(dir, "certs/key.pem") {
		t.Errorf("bootstrap %s", text)
	}
	stop := run(t, a)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%s/stats/prometheus", port))
	must.Succeed(t, err)
	_ = resp.Body.Close()
	stop()
	if _, err := os.Stat(c.XDSSocket); err == nil {
		t.Error("the socket is still there")
	}
}

// run runs an agent until the returned function is called.
func run(t *testing.T, a *Agent) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// proxyless returns the configuration of an agent without Envoy.
func proxyless(t *testing.T, dir string, environ ...string) *config.Config {
	t.Helper()
	roots := filepath.Join(dir, "var/run/secrets/istio/root-cert.pem")
	must.Succeed(t, os.MkdirAll(filepath.Dir(roots), 0o755))
	must.Succeed(t, os.WriteFile(roots, nil, 0o600))
	c, err := config.Read(config.Source{Dir: dir, Version: "1", Environ: append([]string{
		"POD_NAME=web-0", "POD_NAMESPACE=a", "INSTANCE_IP=127.0.0.1", "DISABLE_ENVOY=true",
		`PROXY_CONFIG={"discoveryAddress":"127.0.0.1:15012","statusPort":0}`,
	}, environ...)})
	must.Succeed(t, err)
	return c
}

// short returns a folder whose path is short enough for a socket.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "a")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestComponents checks that the agent ends if a component panics or returns.
func TestComponents(t *testing.T) {
	for want, run := range map[string]func(context.Context) error{
		"x: panic in x: of a test":    func(context.Context) error { panic("of a test") },
		"x: ended before the agent":   func(context.Context) error { return nil },
		"x: something else was wrong": func(context.Context) error { return errors.New("something else was wrong") },
	} {
		a, err := New(Options{Config: proxyless(t, short(t))})
		must.Succeed(t, err)
		a.add("x", run)
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSecondAgent checks that two agents cannot share a folder, and that a second one can use it after the first has
// ended.
func TestSecondAgent(t *testing.T) {
	c := proxyless(t, short(t))
	first, err := New(Options{Config: c})
	must.Succeed(t, err)
	stop := run(t, first)
	if _, err := New(Options{Config: c}); err == nil || !strings.Contains(err.Error(), "another agent uses the folder") {
		t.Errorf("a second agent: %v", err)
	}
	if _, err := os.Stat(c.XDSSocket); err != nil {
		t.Error(err)
	}
	stop()
	next, err := New(Options{Config: c})
	must.Succeed(t, err)
	run(t, next)()
}

// TestOtherCertificates checks that, if another server provides the certificates, the agent writes none, reports
// settings that need them, and does not replace that server. It warns of a token sent without TLS.
func TestOtherCertificates(t *testing.T) {
	c := proxyless(t, short(t), "OUTPUT_CERTS=certs")
	must.Succeed(t, os.MkdirAll(filepath.Dir(c.SDSSocket), 0o755))
	l, err := sds.Listen(c.SDSSocket, 0o600)
	must.Succeed(t, err)
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, secretv3.UnimplementedSecretDiscoveryServiceServer{})
	go func() { _ = server.Serve(l) }()
	if _, err := New(Options{Config: c}); err == nil || !strings.Contains(err.Error(), "OUTPUT_CERTS") {
		t.Errorf("certificates of another server: %v", err)
	}
	server.Stop()
	foreign := proxyless(t, short(t), "WORKLOAD_IDENTITY_SOCKET_FILE=spire")
	if _, err := New(Options{Config: foreign}); err == nil ||
		!strings.Contains(err.Error(), "no server provides certificates at "+foreign.SDSSocket) {
		t.Errorf("another server that is not there: %v", err)
	}

	var log bytes.Buffer
	a, err := New(Options{Config: proxyless(t, short(t), "CA_ADDR=ca.example.com:15010"), Log: slog.New(slog.NewTextHandler(&log, nil))})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil || !strings.Contains(log.String(), "the token is sent to the CA without TLS") {
		t.Errorf("%v: %s", err, log.String())
	}
}

// TestNewFails checks that the error names the option that is wrong.
func TestNewFails(t *testing.T) {
	c, err := config.Read(config.Source{Dir: t.TempDir(), Version: "1",
		Environ: []string{"POD_NAME=web-0", "POD_NAMESPACE=a", "INSTANCE_IP=127.0.0.1",
			`PROXY_CONFIG={"discoveryAddress":"istiod","statusPort":0}`}})
	must.Succeed(t, err)
	if _, err := New(Options{Config: c}); err == nil || !strings.Contains(err.Error(), `address "istiod" of the control plane`) {
		t.Error(err)
	}
}
