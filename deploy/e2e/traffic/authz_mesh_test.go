package traffic

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// Addresses of the mesh.
const (
	authzEchoService = "10.96.0.10"
	echoPod          = "10.10.0.11"
	clientPod        = "10.10.0.12"
	authzGatewayPod  = "10.10.0.16"
)

// authzYAML has a server, two clients with a sidecar in different namespaces, one without a sidecar, the pod of the
// authorizers, and a gateway.
var authzYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10",
	"{name: http, port: 80, targetPort: 8080}", "{name: http-more, port: 81, targetPort: 8081}", "{name: tcp, port: 90, targetPort: 9090}") +
	suite.ServiceYAML("authorizer", "b", "10.96.0.11", "{name: grpc, port: 9000}", "{name: http, port: 8000}",
		"{name: grpc-nobody, port: 9001}") +
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
	suite.GatewayPodYAML("gateway", "a", authzGatewayPod)

// authzMeshConfig has the authorizers of both kinds, an unreachable one and a missing one.
const authzMeshConfig = `
enableTracing: false
extensionProviders:
- {name: by-grpc, envoyExtAuthzGrpc: {service: authorizer.b.svc.cluster.local, port: 9000, timeout: 20s}}
- {name: by-http, envoyExtAuthzHttp: {service: b/authorizer.b.svc.cluster.local, port: 8000, timeout: 20s, pathPrefix: /check,
      includeRequestHeadersInCheck: ["x-pas*"], includeAdditionalHeadersInCheck: {x-mesh: test},
      headersToDownstreamOnAllow: [x-authorizer]}}
- {name: with-body, envoyExtAuthzHttp: {service: authorizer.b.svc.cluster.local, port: 8000, timeout: 20s, pathPrefix: /body,
      includeRequestBodyInCheck: {maxRequestBytes: 10, allowPartialMessage: true},
      headersToUpstreamOnAllow: [x-user], headersToDownstreamOnDeny: [x-why],
      headersToDownstreamOnAllow: [x-authorizer]}}
- {name: whole-body, envoyExtAuthzHttp: {service: authorizer.b.svc.cluster.local, port: 8000, timeout: 20s, pathPrefix: /body,
      includeRequestBodyInCheck: {maxRequestBytes: 10}}}
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

// authzMesh is the mesh of the tests, while it runs.
type authzMesh struct {
	mesh
	trust      trust
	authorizer *authorizer
}

// startAuthz runs the mesh and the authorizers. A variable of the environment selects the version of the proxies.
func startAuthz(t *testing.T, envoy string, trust trust) *authzMesh {
	t.Helper()
	m := start(t, authzYAML, suite.MeshOptions{
		Envoy: envoy, CA: true, AgentEnv: []string{"TRUST_DOMAIN=" + trust.domain},
		Config: authzMeshConfig + "trustDomain: " + trust.domain + "\ntrustDomainAliases: [" + trust.alias + "]\n",
	})
	return &authzMesh{m, trust, startAuthorizer(t, m.Pod("authorizer"))}
}

// call is a request. Zero fields are as in the first of calls: GET / on port 80 of the service.
type call struct {
	from    string // the name of a pod; empty means client
	to      string // an address; empty means the service's, or the pod's for a client without a sidecar
	port    int    // of the service
	method  string
	path    string
	host    string
	headers map[string]string
	want    int // the status, if it is not the usual one
}

// podPorts are the ports of the server's pod, by those of its service.
var podPorts = map[int]int{80: 8080, 81: 8081, 90: 9090}

// call makes a call, and returns the status of the response. A TCP connection with an answer has status 200, and a
// closed one 403.
func (m *authzMesh) call(c call) (status int, err error) {
	from, port := m.Pod(or(c.from, "client")), c.port
	if port == 0 {
		port = 80
	}
	address := net.JoinHostPort(authzEchoService, strconv.Itoa(port))
	switch {
	case c.to != "":
		address = c.to
	case !from.Proxied:
		address = net.JoinHostPort(echoPod, strconv.Itoa(podPorts[port]))
	}
	if port != 90 {
		r, err := m.do(
			request{from: from.Node.Name, address: address, method: c.method, path: c.path, host: or(c.host, "echo.a"), headers: c.headers})
		return r.status, err
	}
	switch text, err := m.line(from.Node.Name, address); {
	case err == nil && strings.HasSuffix(text, "hello"):
		return http.StatusOK, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, err
	}
	return http.StatusForbidden, nil
}

// policies returns the names of the policies that apply to the proxy of a pod, as a debug page has them.
func (m *authzMesh) policies(pod string) []string {
	m.t.Helper()
	id := pod + "." + m.Pod(pod).Node.Namespace
	return page[struct {
		Proxies map[string][]string `json:"proxies"`
	}](m.mesh, "/debug/authorizationz?proxyID="+id).Proxies[id]
}

// apply puts policies in force at the server's sidecar, or at the gateway. Their name is marker. In the text, TRUST is
// the trust domain of the mesh and ALIAS its alias.
func (m *authzMesh) apply(t *testing.T, pod, marker, text string) {
	t.Helper()
	text = strings.NewReplacer("TRUST", m.trust.domain, "ALIAS", m.trust.alias).Replace(text)
	suite.Write(t, filepath.Join(m.Dir, "policies.yaml"), text)
	suite.Eventually(t, marker+" is in force", func() bool {
		dump, err := m.Pod(pod).Proxy.Get(t.Context(), "/config_dump?resource=dynamic_listeners")
		return err == nil && strings.Contains(string(dump), marker) && !strings.Contains(string(dump), `"warming_state"`)
	})
}
