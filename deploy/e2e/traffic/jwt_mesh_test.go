package traffic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

// jwtYAML has a server with a sidecar, a gateway, a client and a server of keys without sidecars. There is no mutual
// TLS, so no proxy needs certificates.
var jwtYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
	suite.ServiceYAML("echo", "a", "10.96.0.10") +
	suite.ServiceYAML("keys", "a", "10.96.0.11") +
	suite.PodYAML("echo", "a", "10.10.0.11", "", suite.Sidecar) +
	suite.GatewayPodYAML("gateway", "a", "10.10.0.12") +
	suite.PodYAML("client", "a", "10.10.0.13", "", suite.Outside) +
	suite.PodYAML("keys", "a", "10.10.0.14", "", suite.Outside) +
	suite.GatewayYAML("gateway", "a", 8000) +
	`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: claims, namespace: a}
spec:
  hosts: ["*"]
  gateways: [gateway]
  http:
  - match: [{headers: {"@request.auth.claims.group": {exact: beta}}}]
    headers: {request: {set: {x-route: beta}}}
    route: [{destination: {host: echo}}]
  - match: [{headers: {"@request.auth.claims[https://example.com/plan][name]": {prefix: gold}},
        withoutHeaders: {"@request.auth.claims.group": {exact: blocked}}}]
    headers: {request: {set: {x-route: gold}}}
    route: [{destination: {host: echo}}]
  - headers: {request: {set: {x-route: any}}}
    route: [{destination: {host: echo}}]
---
`

// jwtMesh is the running mesh.
type jwtMesh struct{ mesh }

// startJWT runs the mesh with policies. env is the control plane's.
func startJWT(t *testing.T, policies string, env ...string) jwtMesh {
	t.Helper()
	m := start(t, jwtYAML, suite.MeshOptions{Files: map[string]string{"policies.yaml": policies}, Env: env})
	m.handle("echo", 8080, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(received{r.Header, r.URL.RawQuery})
	})
	return jwtMesh{m}
}

// received is what the application received.
type received struct {
	Header http.Header
	Query  string
}

// Where the client calls.
const (
	sidecar    = "10.10.0.11:8080"
	jwtGateway = "10.10.0.12:8000"
)

// call sends a request from the client, and returns the status and what reached the application.
func (m jwtMesh) call(to, query string, headers map[string]string) (status int, got received, err error) {
	r, err := m.do(request{from: "client", address: to, path: "/?" + query, headers: headers})
	if err == nil && r.status == http.StatusOK {
		err = json.Unmarshal(r.body, &got)
	}
	return r.status, got, err
}

// eventually waits until a token in the usual place has a status.
func (m jwtMesh) eventually(what, to, token string, status int) {
	m.t.Helper()
	suite.Eventually(m.t, fmt.Sprintf("%s: %d", what, status), func() bool {
		got, _, err := m.call(to, "", bearer(token))
		return err == nil && got == status
	})
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// finding waits until the control plane has a finding about an object and a field, and returns its message. If has is
// false, it waits until there is none.
func (m jwtMesh) finding(object, field string, has bool) (message string) {
	m.t.Helper()
	suite.Eventually(m.t, fmt.Sprintf("a finding about %s %s: %v", object, field, has), func() bool {
		message = ""
		for _, f := range m.findings() {
			if f.Object == object && f.Field == field {
				message = f.Message
			}
		}
		return (message != "") == has
	})
	return message
}
