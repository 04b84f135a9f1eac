package traffic

import (
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// The addresses of services and pods.
const (
	envoyFilterEchoService = "10.96.0.10"
	slowService            = "10.96.0.11"
	envoyFilterGatewayPod  = "10.10.0.14:8080"
)

// slowPort is the port of the slow server, which answers all paths but /hang.
const slowPort = 8000

// envoyFilterYAML has a server and a client with sidecars, a client in another namespace, a gateway, and a pod without
// a sidecar with a client and a server of the test.
var envoyFilterYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10",
	"{name: http, port: 80, targetPort: 8080}", "{name: http-limited, port: 81, targetPort: 8080}",
	"{name: tcp, port: 90, targetPort: 9090}") +
	suite.ServiceYAML("slow", "a", "10.96.0.11", "{name: http, port: 80, targetPort: 8000}") +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: a}
spec:
  hosts: [echo.a.svc.cluster.local]
  http:
  - {match: [{uri: {exact: /teapot}}], fault: {abort: {httpStatus: 418, percentage: {value: 100}}},
        route: [{destination: {host: echo.a.svc.cluster.local}}]}
  - {route: [{destination: {host: echo.a.svc.cluster.local}}]}
---
` +
	suite.GatewayYAML("gateway", "a", 8080) +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gateway, namespace: a}
spec:
  hosts: ["*"]
  gateways: [gateway]
  http:
  - {match: [{uri: {prefix: /slow}}], route: [{destination: {host: slow.a.svc.cluster.local}}]}
  - {route: [{destination: {host: echo.a.svc.cluster.local, port: {number: 80}}}]}
---
` + suite.PodYAML("echo", "a", "10.10.0.11", `"-http=8080", "-tcp=9090"`, suite.Sidecar) +
	suite.PodYAML("client", "a", "10.10.0.12", "", suite.Sidecar) +
	suite.PodYAML("other", "b", "10.10.0.13", "", suite.Sidecar) +
	suite.GatewayPodYAML("gateway", "a", "10.10.0.14") +
	suite.PodYAML("slow", "a", "10.10.0.15", "", suite.Outside)

// startEnvoyFilter runs the mesh and the slow server.
func startEnvoyFilter(t *testing.T, o suite.MeshOptions) mesh {
	t.Helper()
	o.CA = true
	m := start(t, envoyFilterYAML, o)
	m.handle("slow", slowPort, serveSlow)
	return m
}

// serveSlow answers with the remote address, and never answers /hang.
func serveSlow(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hang" {
		<-r.Context().Done()
		return
	}
	w.Header().Set("X-Server", "slow")
	w.Header().Set("X-From", r.Header.Get("X-Forwarded-For"))
}

// echoAt returns the address of a port of the server's service.
func echoAt(port int) string { return net.JoinHostPort(envoyFilterEchoService, strconv.Itoa(port)) }
