package authz

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/world"
)

const startTimeout = 90 * time.Second

// Addresses of the mesh.
const (
	echoService = "10.96.0.10"
	echoPod     = "10.10.0.11"
	clientPod   = "10.10.0.12"
	gatewayPod  = "10.10.0.16"
)

// meshYAML has a server, two clients with a sidecar in namespaces of their own, one without, the pod of the
// authorizers, and a gateway.
var meshYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10", "{name: http, port: 80, targetPort: 8080}", "{name: http-more, port: 81, targetPort: 8081}", "{name: tcp, port: 90, targetPort: 9090}") +
	suite.ServiceYAML("authorizer", "b", "10.96.0.11", "{name: grpc, port: 9000}", "{name: http, port: 8000}", "{name: grpc-nobody, port: 9001}") +
	suite.GatewayYAML("gateway", "a", 8080) +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: gateway, namespace: a}
spec:
  hosts: ["*"]
  gateways: [gateway]
  http: [{route: [{destination: {host: echo.a.svc.cluster.local, port: {number: 80}}}]}]
---
` + suite.PodYAML("echo", "a", echoPod, `"-http=8080", "-http=8081", "-tcp=9090"`, suite.Sidecar) +
	suite.PodYAML("client", "a", clientPod, "", suite.Sidecar) +
	suite.PodYAML("other", "b", "10.10.0.13", "", suite.Sidecar) +
	suite.PodYAML("plain", "b", "10.10.0.14", "", suite.Outside) +
	suite.PodYAML("authorizer", "b", "10.10.0.15", "", suite.Outside) +
	suite.GatewayPodYAML("gateway", "a", gatewayPod)

// meshConfig has the authorizers: of both kinds, and one that cannot be reached or does not exist.
const meshConfig = `
enableTracing: false
extensionProviders:
- {name: by-grpc, envoyExtAuthzGrpc: {service: authorizer.b.svc.cluster.local, port: 9000, timeout: 20s}}
- {name: by-http, envoyExtAuthzHttp: {service: b/authorizer.b.svc.cluster.local, port: 8000, timeout: 20s, pathPrefix: /check, includeRequestHeadersInCheck: ["x-pas*"], includeAdditionalHeadersInCheck: {x-mesh: test}, headersToDownstreamOnAllow: [x-authorizer]}}
- {name: with-body, envoyExtAuthzHttp: {service: authorizer.b.svc.cluster.local, port: 8000, timeout: 20s, pathPrefix: /body, includeRequestBodyInCheck: {maxRequestBytes: 10, allowPartialMessage: true}, headersToUpstreamOnAllow: [x-user], headersToDownstreamOnDeny: [x-why], headersToDownstreamOnAllow: [x-authorizer]}}
- {name: whole-body, envoyExtAuthzHttp: {service: authorizer.b.svc.cluster.local, port: 8000, timeout: 20s, pathPrefix: /body, includeRequestBodyInCheck: {maxRequestBytes: 10}}}
- {name: away, envoyExtAuthzGrpc: {service: authorizer.b.svc.cluster.local, port: 9001, statusOnError: "503"}}
- {name: away-open, envoyExtAuthzGrpc: {service: authorizer.b.svc.cluster.local, port: 9001, failOpen: true}}
- {name: missing-open, envoyExtAuthzGrpc: {service: missing.b.svc.cluster.local, port: 9000, failOpen: true}}
`

// trust is a trust domain of a mesh, and its alias.
type trust struct{ domain, alias string }

// The trust domains of the meshes: the default name, and a mesh without it.
var (
	defaultTrust = trust{"cluster.local", "old.example"}
	otherTrust   = trust{"td1", "td2"}
)

// mesh is the mesh of the tests, while it runs.
type mesh struct {
	*suite.Mesh
	trust      trust
	authorizer *authorizer
}

// startMesh starts the control plane, the pods with their proxies, and the authorizers. The proxies are of the version
// that a variable of the environment names.
func startMesh(t *testing.T, envoy string, trust trust) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m := suite.StartMesh(ctx, t, suite.MeshOptions{
		Network: network, Files: map[string]string{"mesh.yaml": meshYAML}, Envoy: envoy, CA: true,
		AgentEnv: []string{"TRUST_DOMAIN=" + trust.domain},
		Config:   meshConfig + "trustDomain: " + trust.domain + "\ntrustDomainAliases: [" + trust.alias + "]\n",
	})
	return &mesh{m, trust, startAuthorizer(t, m.Pod("authorizer"))}
}

// call is what somebody asks for. What is zero is as in the first of calls: GET / of port 80 of the service.
type call struct {
	from    string // the name of a pod; empty: client
	to      string // an address; empty: the service's, or the pod's for a caller without a sidecar
	port    int    // of the service
	method  string
	path    string
	host    string
	headers map[string]string
	want    int // the status of the answer, where it is not the usual
}

// podPorts are the ports of the server's pod, by those of its service.
var podPorts = map[int]int{80: 8080, 81: 8081, 90: 9090}

// do calls. It returns the status of the answer, and its headers. A connection that is let through has status 200 too,
// and one that is closed has 403.
func (m *mesh) do(ctx context.Context, c call) (status int, headers http.Header, err error) {
	if c.from == "" {
		c.from = "client"
	}
	if c.port == 0 {
		c.port = 80
	}
	from := m.Pod(c.from)
	address := net.JoinHostPort(echoService, strconv.Itoa(c.port))
	switch {
	case c.to != "":
		address = c.to
	case !from.Proxied:
		address = net.JoinHostPort(echoPod, strconv.Itoa(podPorts[c.port]))
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := from.Location.DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return 0, nil, err
	}
	if c.port == 90 {
		status, err := line(conn)
		return status, nil, err
	}
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", or(c.method, "GET"), or(c.path, "/"), or(c.host, "echo.a"))
	for k, v := range c.headers {
		text += k + ": " + v + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"); err != nil {
		return 0, nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	return answer.StatusCode, answer.Header, nil
}

// line sends a line over a connection, and wants it back.
func line(conn net.Conn) (status int, err error) {
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return http.StatusForbidden, nil //nolint:nilerr // a connection that is closed is the answer
	}
	switch text, err := bufio.NewReader(conn).ReadString('\n'); {
	case err == nil && strings.HasSuffix(text, "hello\n"):
		return http.StatusOK, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, err
	}
	return http.StatusForbidden, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// apply puts policies in force at the server's sidecar, or at the gateway. Their name is marker. In the text, TRUST is
// the trust domain of the mesh and ALIAS the alias.
func (m *mesh) apply(t *testing.T, pod, marker, text string) {
	t.Helper()
	text = strings.NewReplacer("TRUST", m.trust.domain, "ALIAS", m.trust.alias).Replace(text)
	suite.Write(t, filepath.Join(m.Dir, "policies.yaml"), text)
	suite.Eventually(t, marker+" is in force", func() bool {
		dump, err := m.Pod(pod).Proxy.Get(t.Context(), "/config_dump?resource=dynamic_listeners")
		return err == nil && strings.Contains(string(dump), marker) && !strings.Contains(string(dump), `"warming_state"`)
	})
}

// policies returns the names of the policies that apply to a pod's proxy, as the control plane's debug page shows them.
func (m *mesh) policies(t *testing.T, pod *world.Running) []string {
	t.Helper()
	id := pod.Node.Name + "." + pod.Node.Namespace
	resp, err := m.Pilot.Get(t.Context(), "/debug/authorizationz?proxyID="+id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct {
		Proxies map[string][]string `json:"proxies"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	return page.Proxies[id]
}
