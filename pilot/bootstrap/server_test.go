package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/client-go/rest"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/config"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/ports"
)

const service = `apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: a}
spec:
  clusterIP: 10.1.0.1
  ports: [{name: http, port: 80}]
`

// deadline bounds every wait of these tests.
const deadline = 2 * time.Minute

func testOptions(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), strings.ReplaceAll(service, "NAME", "web"))
	return Options{
		Options: ingest.Options{
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test",
			ConfigDir: dir, Namespace: "istio-system", Domain: "cluster.local", ClusterID: "Kubernetes", Poll: 50 * time.Millisecond,
			Limits: limits.Default(),
		},
		GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Monitoring: "127.0.0.1:0", SecureGRPC: "127.0.0.1:0", HTTPS: "127.0.0.1:0",
		AddressFile:       filepath.Join(t.TempDir(), "addresses.json"),
		KeepaliveInterval: 30 * time.Second, KeepaliveTimeout: 10 * time.Second, Shutdown: time.Minute,
	}
}

// write replaces a file whole.
func write(t *testing.T, path, text string) {
	t.Helper()
	tmp := filepath.Join(t.TempDir(), "new")
	must.Succeed(t, os.WriteFile(tmp, []byte(text), 0o644))
	must.Succeed(t, os.Rename(tmp, path))
}

// started returns a server that is ready, and stops it when the test ends.
func started(t *testing.T, o Options) *Server {
	t.Helper()
	s, _ := running(t, o)
	return s
}

// running is started, with the function that run returns.
func running(t *testing.T, o Options) (s *Server, stop func() error) {
	t.Helper()
	s, err := New(o)
	must.Succeed(t, err)
	stop = run(t, s)
	eventually(t, "the server is ready", s.ready.Load)
	return s, stop
}

// run starts a server; stop ends it and returns what Run returned.
func run(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var result error
	stopped := false
	stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			select {
			case result = <-ended:
			case <-time.After(deadline):
				t.Error("the server does not stop")
			}
		}
		return result
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", deadline, what)
		}
	}
}

func fetch(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: deadline, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + path)
	must.Succeed(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return resp.StatusCode, string(body)
}

// dial connects to an ADS server until the test ends.
func dial(t *testing.T, address string) discoveryv3.AggregatedDiscoveryServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { conn.Close() })
	return discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
}

// subscribe opens an ADS stream as a sidecar and asks for clusters.
func subscribe(t *testing.T, address string) discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	stream, err := dial(t, address).StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": "a", "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.0.0.1"})
	must.Succeed(t, err)
	n := &corev3.Node{Id: "sidecar~10.0.0.1~web-1.a~a.svc.cluster.local", Metadata: metadata}
	must.Succeed(t, stream.Send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: envoy.ClusterType}))
	return stream
}

// clusters receives one response and reports whether it holds a cluster whose name contains text.
func clusters(t *testing.T, stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, text string) bool {
	t.Helper()
	r, err := stream.Recv()
	must.Succeed(t, err)
	must.Succeed(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: r.TypeUrl, VersionInfo: r.VersionInfo, ResponseNonce: r.Nonce}))
	for _, x := range r.Resources {
		if strings.Contains(string(x.Value), text) {
			return true
		}
	}
	return false
}

// From a file to a stream, a change of the file to the same stream, and a stop that ends it; nothing is left running.
func TestServe(t *testing.T) {
	for name, shared := range map[string]bool{"grpc on its own port": false, "grpc on the http port": true} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			if shared {
				o.GRPC = ""
			}
			s, err := New(o)
			must.Succeed(t, err)
			stop := run(t, s)
			var bound ports.Addresses
			eventually(t, "the address file", func() bool {
				text, err := os.ReadFile(o.AddressFile)
				return err == nil && json.Unmarshal(text, &bound) == nil
			})
			if bound != s.Addresses() || bound.SecureGRPC != "" || bound.HTTPS != "" || shared != (bound.GRPC == bound.HTTP) {
				t.Errorf("bound %+v", bound)
			}
			if code, _ := fetch(t, bound.HTTP, "/ready"); code != http.StatusOK {
				t.Errorf("/ready: %d", code)
			}
			stream := subscribe(t, bound.GRPC)
			if !clusters(t, stream, "web.a.svc.cluster.local") {
				t.Error("the first response does not hold the service")
			}
			write(t, filepath.Join(o.ConfigDir, "more.yaml"), strings.ReplaceAll(service, "NAME", "added"))
			for !clusters(t, stream, "added.a.svc.cluster.local") {
				continue // Recv ends with the deadline
			}
			if _, text := fetch(t, bound.HTTP, "/debug/syncz"); !strings.Contains(text, `"proxy": "web-1.a"`) {
				t.Errorf("syncz: %s", text)
			}
			_, text := fetch(t, bound.Monitoring, "/metrics")
			for _, want := range []string{
				`istio_build{component="pilot",tag="test"} 1`, "pilot_services 2",
				"pilot_pushcontext_init_seconds_count ", "pilot_k8s_endpoints_with_no_pods ",
				"pilot_destrule_subsets 0", `pilot_xds_pushes{type="cds"} 2`, `pilot_k8s_reg_events{event="add",type="Services"} 2`,
				`grpc_server_started_total{grpc_method="StreamAggregatedResources",` +
					`grpc_service="envoy.service.discovery.v3.AggregatedDiscoveryService",grpc_type="bidi_stream"} 1`,
				"go_goroutines", "process_open_fds", "istiod_uptime_seconds",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("/metrics has no %s", want)
				}
			}
			if err := stop(); err != nil {
				t.Errorf("stopped with %v", err)
			}
			for {
				if _, err = stream.Recv(); err != nil {
					break
				}
			}
			if code := status.Code(err); code != codes.Unavailable {
				t.Errorf("the stream ended with %v", err)
			}
			if _, err := os.Stat(o.AddressFile); !os.IsNotExist(err) {
				t.Errorf("the address file outlives the server: %v", err)
			}
		})
	}
}

// idle is a source that brings nothing.
type idle struct{}

func (idle) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (idle) Findings() []diag.Diagnostic { return nil }

// Until every source has synced, readiness fails and ADS does not listen.
func TestNotReadyBeforeSync(t *testing.T) {
	o := testOptions(t)
	s, err := New(o)
	must.Succeed(t, err)
	var late config.Handler
	s.from.Add("late", func(h config.Handler) config.Source {
		late = h
		return idle{}
	})
	run(t, s)
	eventually(t, "http listens", func() bool { return s.Addresses().Monitoring != "" })
	eventually(t, "the directory has synced", func() bool { return slices.Equal(s.from.Awaited(), []string{"late"}) })
	if code, _ := fetch(t, s.Addresses().HTTP, "/ready"); code != http.StatusServiceUnavailable || s.Addresses().GRPC != "" {
		t.Errorf("before the last source synced: /ready %d, grpc %q", code, s.Addresses().GRPC)
	}
	if code, _ := fetch(t, s.Addresses().HTTP, "/debug/registryz"); code != http.StatusOK {
		t.Errorf("debug does not answer before: %d", code)
	}
	late(nil)
	eventually(t, "ready", func() bool { code, _ := fetch(t, s.Addresses().HTTP, "/ready"); return code == http.StatusOK })
	if s.Addresses().GRPC == "" {
		t.Error("ready, but ADS does not listen")
	}
}

// An empty directory is a mesh without services, not a server that waits for ever.
func TestEmptyDirectory(t *testing.T) {
	o := testOptions(t)
	o.ConfigDir = t.TempDir()
	s := started(t, o)
	if !clusters(t, subscribe(t, s.Addresses().GRPC), "BlackHoleCluster") {
		t.Error("no configuration for a proxy in an empty mesh")
	}
}

// A security object that cannot be used keeps the server from starting: it would serve less protection than was asked
// for.
func TestRefusesToStart(t *testing.T) {
	o := testOptions(t)
	write(t, filepath.Join(o.ConfigDir, "policy.yaml"),
		"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: a}\nspec: {acton: DENY}\n")
	s, err := New(o)
	must.Succeed(t, err)
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "configuration directory") {
		t.Errorf("got %v", err)
	}
	if s.Addresses().GRPC != "" {
		t.Error("ADS listened")
	}
}

// TestUnusableMeshConfigIsNotReady keeps a server from becoming ready with the defaults, and follows the text until it
// is mended.
func TestUnusableMeshConfigIsNotReady(t *testing.T) {
	configMap := func(mesh string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n  mesh: |\n    " + mesh + "\n"
	}
	const wrong, right = "outboundTrafficPolicy: {mode: REGISTRY}", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}"
	for name, c := range map[string]struct {
		path   func(*Options) string
		before string
		after  string
	}{
		"ConfigMap in a file": {func(o *Options) string { return filepath.Join(o.ConfigDir, "mesh.yaml") }, configMap(wrong), configMap(right)},
		"mesh file": {func(o *Options) string {
			o.MeshConfig = filepath.Join(t.TempDir(), "mesh")
			return o.MeshConfig
		}, wrong, right},
		"syntax": {func(o *Options) string {
			o.MeshConfig = filepath.Join(t.TempDir(), "mesh")
			return o.MeshConfig
		}, "outboundTrafficPolicy: {", right},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			path := c.path(&o)
			write(t, path, c.before)
			s, err := New(o)
			must.Succeed(t, err)
			run(t, s)
			eventually(t, "the reason", func() bool {
				return strings.Contains(strings.Join(s.awaited(), ""), "a mesh configuration that can be used")
			})
			if code, text := fetch(t, s.Addresses().HTTP, "/ready"); code != http.StatusServiceUnavailable || !strings.Contains(text, path) {
				t.Errorf("%d %s", code, text)
			}
			if s.world.Snapshot() != nil || s.Addresses().GRPC != "" || len(s.findings()) == 0 {
				t.Errorf("findings %v", s.findings())
			}
			write(t, path, c.after)
			eventually(t, "ready", s.ready.Load)
			if s.world.Snapshot().Mesh.AllowAny() || len(s.findings()) > 0 {
				t.Errorf("findings %v", s.findings())
			}
		})
	}
}

// TestReadinessSaysWhy a source has not answered.
func TestReadinessSaysWhy(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods is ` +
			`forbidden: User \"x\" cannot list resource"}`))
	}))
	t.Cleanup(api.Close)
	o := testOptions(t)
	o.Client = &rest.Config{Host: api.URL}
	s, err := New(o)
	must.Succeed(t, err)
	run(t, s)
	eventually(t, "an address", func() bool { return s.Addresses().HTTP != "" })
	eventually(t, "the reason", func() bool {
		_, text := fetch(t, s.Addresses().HTTP, "/ready")
		return strings.Contains(text, "because the API server does not let this server list")
	})
}

// TestUnreadableMeshFileIsRefused at a start. While the server runs, the file keeps its last content.
func TestUnreadableMeshFileIsRefused(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a directory":     func(path string) error { return os.Mkdir(path, 0o755) },
		"link to nowhere": func(path string) error { return os.Symlink("nowhere", path) },
		"too large":       func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("#\n", 1<<20)), 0o600) },
	} {
		for _, set := range []func(*Options, string){
			func(o *Options, path string) { o.MeshConfig = path },
			func(o *Options, path string) { o.MeshNetworks = path },
		} {
			o := testOptions(t)
			path := filepath.Join(t.TempDir(), "file")
			set(&o, path)
			must.Succeed(t, make(path))
			s, err := New(o)
			must.Succeed(t, err)
			if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", name, err)
			}
			if s.Addresses().GRPC != "" {
				t.Errorf("%s: ADS listened", name)
			}
		}
	}
	o := testOptions(t)
	o.MeshConfig = filepath.Join(t.TempDir(), "mesh")
	write(t, o.MeshConfig, "trustDomain: a.example")
	s := started(t, o)
	must.Succeed(t, errors.Join(os.Remove(o.MeshConfig), os.Mkdir(o.MeshConfig, 0o755)))
	eventually(t, "a finding", func() bool { return len(s.findings()) == 1 && s.findings()[0].Code == "Unreadable" })
	if got := s.world.Snapshot().Mesh.GetTrustDomain(); got != "a.example" {
		t.Errorf("trust domain %s", got)
	}
}

func TestMeshConfig(t *testing.T) {
	o := testOptions(t)
	configMap := func(mesh string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata:\n  mesh: |\n    " + mesh + "\n"
	}
	write(t, filepath.Join(o.ConfigDir, "mesh.yaml"), configMap("connectTimeout: 3s"))

	t.Run("from the ConfigMap", func(t *testing.T) {
		s := started(t, o)
		timeout := func() string { return s.world.Snapshot().Mesh.GetConnectTimeout().AsDuration().String() }
		if timeout() != "3s" {
			t.Errorf("connect timeout %s", timeout())
		}
		write(t, filepath.Join(o.ConfigDir, "mesh.yaml"), configMap("connectTimeout: 4s"))
		eventually(t, "the change", func() bool { return timeout() == "4s" })
		write(t, filepath.Join(o.ConfigDir, "mesh.yaml"), configMap("connectTimeoot: 5s"))
		eventually(t, "the finding", func() bool { return len(s.world.Findings()) > 0 })
		if timeout() != "4s" {
			t.Errorf("a wrong mesh configuration was taken: %s", timeout())
		}
		write(t, filepath.Join(o.ConfigDir, "mesh.yaml"), configMap("trustDomain: other.example"))
		eventually(t, "the trust domain, and no finding", func() bool {
			return s.world.Snapshot().Mesh.GetTrustDomain() == "other.example" && len(s.world.Findings()) == 0
		})
		if n := len(s.world.Snapshot().Services()); n != 1 {
			t.Errorf("%d services", n)
		}
	})

	t.Run("from a file, which wins", func(t *testing.T) {
		o := o
		o.MeshConfig = filepath.Join(t.TempDir(), "mesh")
		write(t, o.MeshConfig, "connectTimeout: 7s\n")
		s := started(t, o)
		timeout := func() string { return s.world.Snapshot().Mesh.GetConnectTimeout().AsDuration().String() }
		if timeout() != "7s" {
			t.Errorf("connect timeout %s", timeout())
		}
		write(t, filepath.Join(o.ConfigDir, "mesh.yaml"), configMap("connectTimeout: 9s"))
		write(t, o.MeshConfig, "connectTimeout: 8s\n")
		eventually(t, "the change", func() bool { return timeout() == "8s" })
		must.Succeed(t, os.Remove(o.MeshConfig))
		time.Sleep(3 * o.Poll)
		if timeout() != "8s" {
			t.Errorf("a file that vanished changed the mesh configuration: %s", timeout())
		}
	})

	t.Run("a file wins for its own key alone", func(t *testing.T) {
		o := o
		write(t, filepath.Join(o.ConfigDir, "mesh.yaml"),
			configMap("connectTimeout: 6s")+"  meshNetworks: |\n    networks: {near: {endpoints: [{fromCidr: 10.0.0.0/8}]}}\n")
		for name, file := range map[string]struct{ mesh, networks, timeout, has string }{
			"networks": {networks: "networks: {far: {endpoints: [{fromCidr: 10.0.0.0/9}]}}", timeout: "6s", has: "10.0.0.0/9"},
			"mesh":     {mesh: "connectTimeout: 5s", timeout: "5s", has: "10.0.0.0/8"},
			"broken":   {networks: "networks: {far: {endpoints: [{fromCidr: nowhere}]}}", timeout: "6s"},
		} {
			o.MeshConfig, o.MeshNetworks = filepath.Join(t.TempDir(), "mesh"), filepath.Join(t.TempDir(), "networks")
			for path, text := range map[string]string{o.MeshConfig: file.mesh, o.MeshNetworks: file.networks} {
				if text != "" {
					write(t, path, text)
				}
			}
			s, err := New(o)
			must.Succeed(t, err)
			run(t, s)
			if file.has == "" {
				eventually(t, name+" is not ready", func() bool {
					return strings.Contains(strings.Join(s.awaited(), ""), "mesh networks that can be used")
				})
				if found := s.findings(); len(found) == 0 || found[0].File != o.MeshNetworks {
					t.Errorf("%s: findings %v, want them in %s", name, found, o.MeshNetworks)
				}
				write(t, o.MeshNetworks, "networks: {}")
			}
			eventually(t, name+" is ready", s.ready.Load)
			if got := s.world.Snapshot().Mesh.GetConnectTimeout().AsDuration().String(); got != file.timeout {
				t.Errorf("%s: connect timeout %s, want %s", name, got, file.timeout)
			}
			if n := s.world.Snapshot().Networks; file.has != "" && !slices.Equal(slices.Collect(n.Ranges.All), []string{file.has}) {
				t.Errorf("%s: networks %v", name, n)
			}
		}
	})
}
