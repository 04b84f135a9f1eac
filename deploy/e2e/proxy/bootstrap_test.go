package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestBootstrap has Envoy itself check what is written for it.
func TestBootstrap(t *testing.T) {
	envoy := os.Getenv("ENVOY")
	if envoy == "" {
		envoy = "../../../.tools/envoy"
	}
	for name, o := range map[string]Options{
		"sidecar, delta": {
			Delta: true, Mark: 1337,
			Node: Node{Type: "sidecar", Addr: netip.MustParseAddr("10.0.0.1"), Name: "web-0", Namespace: "a",
				Labels: map[string]string{"app": "web"}, Interception: "REDIRECT"},
		},
		"router, state of the world": {Node: Node{Type: "router", Addr: netip.MustParseAddr("10.0.0.2"), Name: "gw-0", Namespace: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			o.XDS, o.Admin = "127.0.0.1:15010", "127.0.0.1:0"
			b, err := o.bootstrap()
			must.Succeed(t, err)
			file := filepath.Join(t.TempDir(), "bootstrap.json")
			must.Succeed(t, os.WriteFile(file, b, 0o600))
			if out, err := exec.Command(envoy, "--mode", "validate", "-c", file).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// elsewhere is a place whose network leads to one server only.
type elsewhere struct{ addr string }

func (elsewhere) Start(*exec.Cmd) error { return os.ErrInvalid }

func (e elsewhere) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, e.addr)
}

func TestHealthy(t *testing.T) {
	const good = `cluster_manager.cds.update_rejected: 0
cluster_manager.cds.update_success: 1
cluster_manager.warming_clusters: 0
http.outbound_0.0.0.0_80;.rds.80.update_rejected: 0
listener_manager.lds.update_success: 2
listener_manager.total_listeners_warming: 0
listener_manager.workers_started: 1
`
	for _, c := range []struct {
		name, old, now string
		healthy, final bool
	}{
		{name: "all taken", healthy: true},
		{name: "route rejected", old: "rds.80.update_rejected: 0", now: "rds.80.update_rejected: 1", final: true},
		{name: "cluster warming", old: "warming_clusters: 0", now: "warming_clusters: 1"},
		{name: "listener warming", old: "listeners_warming: 0", now: "listeners_warming: 1"},
		{name: "no listeners yet", old: "lds.update_success: 2", now: "lds.update_success: 0"},
		{name: "not started", old: "workers_started: 1", now: "workers_started: 0"},
		{name: "no gauge of warming", old: "listener_manager.total_listeners_warming: 0\n", now: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, strings.Replace(good, c.old, c.now, 1))
			}))
			t.Cleanup(admin.Close)
			location := elsewhere{admin.Listener.Addr().String()}
			p := &Proxy{
				o:     Options{Location: location, Admin: "127.0.0.1:15000", WorkDir: t.TempDir()},
				admin: &http.Client{Transport: &http.Transport{DialContext: location.DialContext, DisableKeepAlives: true}},
			}
			err := p.Healthy(t.Context())
			if (err == nil) != c.healthy || !c.healthy && errors.Is(err, errNotYet) == c.final {
				t.Errorf("healthy says %v", err)
			}
		})
	}
}
