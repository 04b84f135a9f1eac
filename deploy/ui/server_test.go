//go:build browser

package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

// patience bounds every wait.
const patience = time.Minute

// server is a server of a directory.
type server struct {
	t                *testing.T
	dir              string
	command          *exec.Cmd
	GRPC, Monitoring string
}

// program returns the path of pilot-discovery.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PILOT_DISCOVERY")
	if path == "" {
		path = "../../bin/pilot-discovery"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make build, or name the program in PILOT_DISCOVERY", err)
	}
	return path
}

// start starts a server of a mesh, on ports that are free.
func start(t *testing.T, mesh map[string]string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir()}
	for name, text := range mesh {
		s.write(name, text)
	}
	addresses := filepath.Join(t.TempDir(), "addresses.json")
	s.command = run(t, "discovery", "--configDir", s.dir, "--grpcAddr", "127.0.0.1:0", "--httpAddr", "127.0.0.1:0", "--monitoringAddr", "127.0.0.1:0",
		"--secureGRPCAddr", "", "--httpsAddr", "", "--addressFile", addresses)
	eventually(t, "the server is ready", func() bool {
		text, err := os.ReadFile(addresses)
		return err == nil && json.Unmarshal(text, &struct {
			GRPC       *string `json:"grpc"`
			Monitoring *string `json:"monitoring"`
		}{&s.GRPC, &s.Monitoring}) == nil && s.Monitoring != ""
	})
	return s
}

// run starts the program, and ends it with the test.
func run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), args[0]+".log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program(t), args...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		ended := make(chan struct{})
		go func() { _ = c.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = c.Process.Kill()
			<-ended
		}
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", args[0], text[max(0, len(text)-8000):])
		}
		_ = log.Close()
	})
	return c
}

// write replaces a file of the mesh whole.
func (s *server) write(name, text string) {
	s.t.Helper()
	tmp := filepath.Join(s.t.TempDir(), "new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) get(path string, to any) {
	s.t.Helper()
	resp, err := http.Get("http://" + s.Monitoring + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, to)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d %v %s", path, resp.StatusCode, err, text)
	}
}

// proxies connects simulated proxies, and returns when the page knows them.
func (s *server) proxies(n int) {
	s.t.Helper()
	run(s.t, "load", "--address", s.GRPC, "--proxies", fmt.Sprint(n), "--duration", "2h", "--namespace", "shop,pay,edge", "--rate", "200")
	eventually(s.t, "the proxies are connected", func() bool {
		var v struct{ Proxies map[string]int }
		s.get("/ui/api/summary", &v)
		return v.Proxies["all"] >= n
	})
}

// rejecting connects a proxy that takes no routes whose virtual hosts have a header of that name.
func (s *server) rejecting(pod, namespace, text string) {
	s.t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(func() { cancel(); _ = cc.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(cc).StreamAggregatedResources(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": "10.9.0.1", "ISTIO_VERSION": "1.31.0"})
	if err != nil {
		s.t.Fatal(err)
	}
	const routes = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	n := &corev3.Node{Id: "sidecar~10.9.0.1~" + pod + "." + namespace + "~" + namespace + ".svc.cluster.local", Metadata: metadata}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: n, TypeUrl: routes, ResourceNames: []string{"80"}}); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			answer := &discoveryv3.DiscoveryRequest{TypeUrl: routes, ResourceNames: []string{"80"}, ResponseNonce: m.Nonce, VersionInfo: m.VersionInfo}
			for _, r := range m.Resources {
				if strings.Contains(string(r.Value), text) {
					answer.ErrorDetail = &rpcstatus.Status{Code: 13, Message: "route 80: the header " + text + " cannot be set here"}
				}
			}
			if stream.Send(answer) != nil {
				return
			}
		}
	}()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
