package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/kubelet"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/installed"
	"github.com/istiod-lite/istiod-lite/deploy/freeport"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
)

const (
	firstCluster = "outbound|80||first.shop.svc.cluster.local"
	firstSubset  = "outbound|80|v1|first.shop.svc.cluster.local"
)

// shop is the initial world of proxies.
const shop = `
apiVersion: v1
kind: Pod
metadata: {name: probe, namespace: shop, labels: {app: probe}}
spec: {nodeName: n1, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: 10.20.0.9, podIPs: [{ip: 10.20.0.9}], conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: first, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: first, namespace: shop, labels: {kubernetes.io/service-name: first}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.20.0.1], conditions: {ready: true}}]
---
` + firstVirtualService + `---
` + destinationRule

const firstVirtualService = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: first, namespace: shop}
spec: {hosts: [first.shop.svc.cluster.local], http: [{match: [{uri: {prefix: /marker}}],
    route: [{destination: {host: first.shop.svc.cluster.local}}]}, {route: [{destination: {host: first.shop.svc.cluster.local}}]}]}
`

const destinationRule = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: first, namespace: shop}
spec: {host: first.shop.svc.cluster.local, subsets: [{name: v1, labels: {version: v1}}]}
`

// shopGuards are the texts that every proxy has from its first response on.
var shopGuards = []guard{
	{envoy.ClusterType, firstCluster, "first"},
	{envoy.ClusterType, firstSubset, "first"},
	{envoy.EndpointType, firstCluster, "10.20.0.1"},
	{envoy.ListenerType, "0.0.0.0_80", "80"},
	{envoy.RouteType, "80", "/marker"},
}

// mesh is a cluster with the charts installed, the server of the chart as a process with the rights of the chart, two
// proxies' streams, and a fault proxy between the server and its cluster.
type mesh struct {
	*installed.World

	http, grpc, monitoring string
	server                 *kubelet.Container
	clients                []*adsClient
	gone                   []string     // what the test removed
	unready                atomic.Int64 // how often the server lost its readiness
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	w := &mesh{World: installed.Start(t)}
	w.Write(shop)
	return w
}

func (w *mesh) remove(yaml string) { w.T.Helper(); w.Must(w.Delete(w.Ctx, []byte(yaml))) }

// serve starts the server and the two clients, and does not wait.
func (w *mesh) serve() {
	w.T.Helper()
	w.launch("istiod-0")
	for _, protocol := range []string{"delta", "sotw"} {
		w.clients = append(w.clients, connect(w.T, protocol, w.grpc, shopGuards))
	}
}

// launch starts the server as the chart's Deployment would start that pod. Its addresses are known before it is ready.
func (w *mesh) launch(name string) {
	w.T.Helper()
	for _, at := range []*string{&w.http, &w.grpc, &w.monitoring} {
		port, err := freeport.Pick(w.Ctx, "127.0.0.1")
		w.Must(err)
		*at = net.JoinHostPort("127.0.0.1", port)
	}
	// The server need not drain here.
	w.server = w.Launch(program, "istiod", name, "--httpAddr", w.http, "--grpcAddr", w.grpc, "--monitoringAddr", w.monitoring,
		"--secureGRPCAddr=", "--httpsAddr=", "--drainDuration=0s").Container
}

// settled waits until the server is ready, and checks from then on that it stays ready.
func (w *mesh) settled() {
	w.T.Helper()
	w.eventually("ready", w.ready)
	ctx, cancel := context.WithCancel(w.Ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if !w.ready() {
				w.unready.Add(1)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	w.T.Cleanup(func() {
		cancel()
		<-done
	})
	w.eventually("the clients have everything", func() bool {
		return !slices.ContainsFunc(w.clients, func(c *adsClient) bool { return !c.complete() })
	})
	w.steady("start")
}

// steady fails if a client lost anything that the test has not removed, or if the server was not ready.
func (w *mesh) steady(what string) {
	w.T.Helper()
	for _, c := range w.clients {
		c.check(w.T, what, w.gone)
	}
	if n := w.unready.Swap(0); n > 0 {
		w.T.Errorf("%s: %d times not ready", what, n)
	}
}

// through runs a fault. Later changes arrive, and nothing was lost.
func (w *mesh) through(what string, fault func()) {
	w.T.Helper()
	began := time.Now()
	fault()
	w.comes(what)
	w.steady(what)
	w.eventually(what+" is over: nothing is found any more", w.well)
	w.T.Logf("%s: %.1f s", what, time.Since(began).Seconds())
}

// comes creates a service, and waits until both clients have it.
func (w *mesh) comes(what string) {
	w.T.Helper()
	name := "after-" + strings.ReplaceAll(what, " ", "-")
	w.Write(service(name))
	w.arrives(envoy.ClusterType, clusterOf(name), "")
	w.arrives(envoy.RouteType, "80", name+".shop.svc.cluster.local")
}

func service(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {ports: [{name: http, port: 80}]}\n", name)
}

func clusterOf(service string) string { return "outbound|80||" + service + ".shop.svc.cluster.local" }

func (w *mesh) arrives(typ, name, text string) {
	w.T.Helper()
	for _, c := range w.clients {
		w.eventually(fmt.Sprintf("%s with %q comes to the %s client", name, text, c.protocol), func() bool { return c.has(typ, name, text) })
	}
}

func (w *mesh) goes(typ, name string) {
	w.T.Helper()
	for _, c := range w.clients {
		w.eventually(name+" goes from the "+c.protocol+" client", func() bool { return !c.has(typ, name, "") })
	}
}

func (w *mesh) eventually(what string, ok func() bool) {
	w.T.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.T.Fatalf("not within %s: %s; findings: %s", within, what, w.get(w.http, "/debug/findings"))
		}
	}
}

// get returns the text of a page, or an empty string.
func (w *mesh) get(address, path string) string {
	body, _ := w.fetch(address, path)
	return body
}

func (w *mesh) fetch(address, path string) (string, int) {
	client := &http.Client{Timeout: time.Minute}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return "", 0
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", 0
	}
	return string(body), resp.StatusCode
}

func (w *mesh) ready() bool {
	_, code := w.fetch(w.http, "/ready")
	return code == http.StatusOK
}

func (w *mesh) finding(text string) bool {
	return strings.Contains(w.get(w.http, "/debug/findings"), text)
}

// away reports whether a finding says that the API server cannot be read.
func (w *mesh) away() bool { return w.finding(`"APIServer"`) }

// well reports whether the sources have no findings, nor will have any soon. Findings about objects, such as the
// Service of the server, which has no Pod here, have istioctl's codes.
func (w *mesh) well() bool {
	var findings []struct{ Code string }
	body, code := w.fetch(w.http, "/debug/findings")
	if code != http.StatusOK || json.Unmarshal([]byte(body), &findings) != nil {
		return false
	}
	return !slices.ContainsFunc(findings, func(f struct{ Code string }) bool { return !strings.HasPrefix(f.Code, "IST") }) &&
		!anyStalled.MatchString(w.get(w.monitoring, "/metrics"))
}

var anyStalled = regexp.MustCompile(`(?m)^pilot_k8s_watch_stalled\{.*\} 1$`)

// stalled reports whether the metric counts the resource as unreadable.
func (w *mesh) stalled(resource string) bool {
	return strings.Contains(w.get(w.monitoring, "/metrics"), fmt.Sprintf("pilot_k8s_watch_stalled{cluster=\"\",resource=%q} 1", resource))
}

// said returns the log of the server.
func (w *mesh) said() string { return w.server.Log() }
