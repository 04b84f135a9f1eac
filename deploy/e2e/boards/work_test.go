package boards

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/served"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// scrape, sample and answer are those of deploy/promql.
type scrape struct {
	At     int64             `json:"at"`
	Labels map[string]string `json:"labels"`
	Type   string            `json:"type"`
	Text   string            `json:"text"`
}

type sample struct {
	Labels map[string]string `json:"labels"`
	Value  string            `json:"value"`
}

type answer struct {
	Error    string   `json:"error"`
	Warnings []string `json:"warnings"`
	Samples  []sample `json:"samples"`
}

// ask has Prometheus's engine answer queries at the time of the last scrape.
func ask(t *testing.T, scrapes []scrape, queries []string) []answer {
	t.Helper()
	program, err := binaries.Tool("promql", "PROMQL")
	must.Succeed(t, err)
	plain := make([]string, len(queries))
	for i, q := range queries {
		plain[i] = strings.NewReplacer("$__rate_interval", "1m", "$__interval", "15s").Replace(q)
	}
	in, err := json.Marshal(map[string]any{"scrapes": scrapes, "queries": plain})
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var answers []answer
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(queries) {
		t.Fatalf("%d answers to %d queries: %v", len(answers), len(queries), err)
	}
	return answers
}

const service = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: a}
spec:
  clusterIP: 10.1.0.1
  selector: {app: web}
  ports: [{name: http, port: 80}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: a}
spec:
  hosts: [web]
  http: [{timeout: %ds, route: [{destination: {host: web}}]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: a, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.2.0.%d]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: lost, namespace: a}
spec:
  hosts: [web]
  gateways: [nowhere]
  http: [{route: [{destination: {host: nobody}}]}]
`

// rounds is how often something changes and the metrics are scraped, once a second: rates look at more than one scrape.
const rounds = 8

// work makes a control plane serve proxies, accept changes, review objects and issue certificates while it is scraped.
// It returns the scrapes, with those of the other programs in a cluster.
func work(t *testing.T) []scrape {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	mesh := func(i int) string { return fmt.Sprintf(service, i+1, i+1) }
	p := served.Start(t, served.Options{Mesh: map[string]string{"web.yaml": mesh(0)}, Authority: true})
	p.Load(10, "--namespace", "a")
	others, err := os.ReadFile("testdata/others.txt")
	must.Succeed(t, err)
	fetch := func() string { _, text := p.Fetch("/metrics"); return text }
	p.Eventually("the proxies are served", func() bool {
		n := 0.0
		for line := range strings.Lines(fetch()) {
			if value, ok := strings.CutPrefix(line, `pilot_xds_pushes{type="eds"} `); ok {
				_, _ = fmt.Sscan(value, &n)
			}
		}
		return n >= 10
	})
	var scrapes []scrape
	for i := range rounds {
		at := time.Now()
		scrapes = append(scrapes,
			scrape{At: at.UnixMilli(), Labels: map[string]string{"job": "istiod", "app": "istiod", "instance": p.Monitoring, "pod": "istiod-0",
				"namespace": "istio-system"}, Text: fetch()},
			scrape{At: at.UnixMilli(), Labels: map[string]string{"job": "others", "instance": "10.0.0.1:1"},
				Text: strings.ReplaceAll(string(others), "COUNT", fmt.Sprint(1000*(i+1)))})
		p.Write("web.yaml", mesh(i+1))
		review(t, p.HTTP, "/validate", `["web"]`)
		review(t, p.HTTP, "/validate", `["*"]`)
		review(t, p.HTTP, "/inject", `["web"]`)
		reject(ctx, t, p.GRPC)
		time.Sleep(time.Until(at.Add(time.Second)))
	}
	return scrapes
}

// review sends a VirtualService for some hosts to the webhook. For all hosts of the mesh it is invalid.
func review(t *testing.T, address, path, hosts string) {
	t.Helper()
	body := `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE", "namespace": "a",
		"kind": {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"},
		"resource": {"group": "networking.istio.io", "version": "v1", "resource": "virtualservices"},
		"object": {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "x", "namespace": "a"},
			"spec": {"hosts": ` + hosts + `, "http": [{"route": [{"destination": {"host": "web"}}]}]}}}}`
	resp, err := http.Post("http://"+address+path, "application/json", strings.NewReader(body))
	must.Succeed(t, err)
	_ = resp.Body.Close()
}

// reject subscribes to clusters as a proxy, and rejects the response.
func reject(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	must.Succeed(t, err)
	const clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	r := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "sidecar~10.2.9.9~picky-0.a~a.svc.cluster.local"}, TypeUrl: clusters}
	must.Succeed(t, stream.Send(r))
	m, err := stream.Recv()
	must.Succeed(t, err)
	r.ResponseNonce, r.ErrorDetail = m.Nonce, &status.Status{Code: int32(codes.InvalidArgument), Message: "no such cluster type"}
	must.Succeed(t, stream.Send(r))
	_ = stream.CloseSend()
	_, _ = stream.Recv() // after another response or the end, the server has read the rejection
}
