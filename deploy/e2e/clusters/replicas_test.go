package clusters

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/istiod-lite/istiod-lite/cmd/version"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/controlplane"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// ownService is the Service of the replicas, without endpoints.
const ownService = `
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
---
apiVersion: v1
kind: Service
metadata: {name: istiod, namespace: istio-system}
spec:
  ports:
  - {name: grpc-xds, port: 15010}
  - {name: https-dns, port: 15012}
`

// replicaPod returns the Pod of a replica and its part of the Service's endpoints: its name, address and secure port.
const replicaPod = `
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: istio-system, labels: {app: istiod}}
spec: {containers: [{name: discovery, image: pilot}]}
status: {phase: Running, podIP: %[2]s, podIPs: [{ip: %[2]s}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: istio-system, labels: {kubernetes.io/service-name: istiod}}
addressType: IPv4
ports:
- {name: https-dns, port: %[3]s, protocol: TCP}
endpoints:
- addresses: [%[2]s]
  conditions: {ready: true, serving: true, terminating: false}
  targetRef: {kind: Pod, name: %[1]s, namespace: istio-system}
`

// replicas is three replicas of one control plane.
type replicas struct {
	all [3]*controlplane.Process
}

// TestReplicas: each of three replicas shows the proxies and pushes of all, and names a replica that was stopped, was
// killed or has another version. Requests of istioctl are answered for one replica.
func TestReplicas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{})
	must.Succeed(t, err)
	t.Cleanup(c.Stop)
	must.Succeed(t, c.InstallCRDs(ctx, os.Getenv(crdsVar)))
	must.Succeed(t, c.Apply(ctx, []byte(ownService)))

	work := t.TempDir()
	suite.LogTails(t, work)
	var r replicas
	var group errgroup.Group
	for i := range r.all {
		group.Go(func() (err error) {
			r.all[i], err = r.start(ctx, t, c, i, filepath.Join(work, fmt.Sprint(i)))
			return err
		})
	}
	must.Succeed(t, group.Wait())
	for i, p := range r.all {
		connect(t, p.GRPC, fmt.Sprintf("web-%d", i))
	}
	must.Succeed(t, c.Apply(ctx,
		[]byte("apiVersion: v1\nkind: Service\nmetadata: {name: late, namespace: default}\nspec: {ports: [{name: http, port: 80}]}\n")))

	stopped := func(name string) string { return name + " did not answer: it did not answer within 2s" }
	killed := func(name string) string { return name + " did not answer: failed to reach it: " }
	older := "istiod-2 is of version " + otherVersion
	r.shows(t, 0, "all", []string{"web-0", "web-1", "web-2"}, []string{older}, []string{"did not answer"})
	r.shows(t, 2, "all, by the one of another version", []string{"web-0", "web-1", "web-2"},
		[]string{"istiod-0 is of version " + version.APILevel}, []string{"did not answer"})
	for i, p := range r.all { // istioctl merges these itself
		if text := r.say(t, "request", "GET", "/debug/syncz", "--address", p.Monitoring); strings.Count(text, `"proxy": `) != 1 ||
			!strings.Contains(text, fmt.Sprintf("web-%d.default", i)) {
			t.Errorf("syncz of replica %d: %s", i, text)
		}
	}
	if text := r.say(t, "check", "--proxy", "web-1.default", "--kubeconfig", c.Kubeconfig(), "--address", r.all[0].Monitoring, "-o",
		"wide"); !strings.Contains(text, "to istiod-1") {
		t.Errorf("check of a proxy elsewhere: %s", text)
	}

	must.Succeed(t, syscall.Kill(r.all[1].PID(), syscall.SIGSTOP))
	r.shows(t, 0, "one is stopped", []string{"web-0", "web-2"}, []string{stopped("istiod-1"), older}, []string{"web-1"})
	if text := r.say(t, "check", "--kubeconfig", c.Kubeconfig(), "--address", r.all[0].Monitoring); !strings.Contains(text,
		"istiod-1 did not answer, so its proxies are not checked") {
		t.Errorf("check with a stopped replica: %s", text)
	}
	must.Succeed(t, syscall.Kill(r.all[1].PID(), syscall.SIGCONT))
	r.shows(t, 0, "it goes on", []string{"web-0", "web-1", "web-2"}, []string{older}, []string{"did not answer"})

	r.all[2].Kill()
	r.shows(t, 1, "one is killed", []string{"web-0", "web-1"}, []string{killed("istiod-2")}, []string{"web-2", "is of version"})
}

// otherVersion is the version of the third replica. It has the length of this program's version.
const otherVersion = "1.31.1-lite.0"

// start runs a replica, as its Pod would, and adds it to the endpoints of the Service. The last is the same program
// with another version in it.
func (*replicas) start(ctx context.Context, t *testing.T, c *cluster.Cluster, i int, work string) (*controlplane.Process, error) {
	name, ip := fmt.Sprintf("istiod-%d", i), netip.AddrFrom4([4]byte{10, 10, 9, byte(10 + i)})
	binary := os.Getenv(pilotVar)
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, err
	}
	if err := network.AddAddress(ip); err != nil {
		return nil, err
	}
	if i == 2 {
		text, err := os.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		binary = filepath.Join(work, "pilot-discovery")
		if err := os.WriteFile(binary, bytes.ReplaceAll(text, []byte(version.APILevel), []byte(otherVersion)), 0o755); err != nil {
			return nil, err
		}
	}
	port, err := freeport.Pick(ctx, ip.String())
	if err != nil {
		return nil, err
	}
	p, err := controlplane.Start(ctx, controlplane.Options{
		Binary: binary, Kubeconfig: c.Kubeconfig(), Host: ip.String(), WorkDir: work,
		Args: []string{"--secureGRPCAddr", net.JoinHostPort(ip.String(), port), "--ctrlz_port=0"},
		Env:  []string{"POD_NAME=" + name, "POD_NAMESPACE=istio-system", "INJECT_ENABLED=false"},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = syscall.Kill(p.PID(), syscall.SIGCONT) // it may be stopped
		p.Stop()
	})
	return p, c.Apply(ctx, fmt.Appendf(nil, replicaPod, name, ip, port))
}

// say runs a command, and returns all that it prints.
func (*replicas) say(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv(pilotVar), args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	text, _ := cmd.CombinedOutput() // check fails where something is wrong
	return string(text)
}

// shows waits until proxy-status and pushes of a replica show these proxies, each with its replica, and these lines,
// and none of the forbidden texts, as tables and as JSON.
func (r *replicas) shows(t *testing.T, at int, what string, proxies, lines, not []string) {
	t.Helper()
	address := []string{"--address", r.all[at].Monitoring}
	var text string
	has := func(all ...string) bool {
		for _, part := range all {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return true
	}
	lacks := func() bool {
		for _, part := range not {
			if strings.Contains(text, part) {
				return false
			}
		}
		return true
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: the last answer: %s", what, text)
		}
	})
	for _, output := range []string{"wide", "json"} {
		suite.Eventually(t, what+": proxy-status -o "+output, func() bool {
			text = r.say(t, append([]string{"proxy-status", "-o", output}, address...)...)
			for _, p := range proxies {
				if !has(p + ".default") {
					return false
				}
			}
			return has(lines...) && lacks()
		})
		suite.Eventually(t, what+": pushes -o "+output, func() bool {
			text = r.say(t, append([]string{"pushes", "-o", output}, address...)...)
			for _, p := range proxies {
				if !has(strings.Replace(p, "web", "istiod", 1)) {
					return false
				}
			}
			return has("late") && has(lines...)
		})
	}
}

// connect keeps a proxy's stream open until the test ends.
func connect(t *testing.T, address, name string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	must.Succeed(t, err)
	metadata, err := structpb.NewStruct(map[string]any{"NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.31.0"})
	must.Succeed(t, err)
	node := &corev3.Node{Id: "sidecar~10.9.9.9~" + name + ".default~default.svc.cluster.local", Metadata: metadata}
	must.Succeed(t, stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := stream.Recv()
			if err != nil ||
				stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, VersionInfo: m.VersionInfo}) != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = conn.Close()
	})
}
