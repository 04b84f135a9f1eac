package jwt

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const startTimeout = 90 * time.Second

// meshYAML has a server with a sidecar, a gateway, a client and a server of keys without sidecars. There is no mutual
// TLS, so no proxy needs certificates.
var meshYAML = suite.NamespacesYAML("istio-system", "a") + suite.PeerAuthenticationYAML("DISABLE") +
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
  - match: [{headers: {"@request.auth.claims[https://example.com/plan][name]": {prefix: gold}}, withoutHeaders: {"@request.auth.claims.group": {exact: blocked}}}]
    headers: {request: {set: {x-route: gold}}}
    route: [{destination: {host: echo}}]
  - headers: {request: {set: {x-route: any}}}
    route: [{destination: {host: echo}}]
---
`

// mesh is a control plane that follows a directory, and the pods of the directory.
type mesh struct {
	*suite.Mesh
	t *testing.T
}

// start runs a mesh with policies, and returns once its proxies are ready.
func start(ctx context.Context, t *testing.T, policies string, env ...string) mesh {
	t.Helper()
	files := map[string]string{"mesh.yaml": meshYAML, "policies.yaml": policies}
	m := mesh{suite.StartMesh(ctx, t, suite.MeshOptions{Network: network, Files: files, Env: env}), t}
	m.application("echo")
	return m
}

// write writes a file of the directory.
func (m mesh) write(name, text string) {
	m.t.Helper()
	suite.Write(m.t, filepath.Join(m.Dir, name), text)
}

// application answers on port 8080 of a pod with the headers and the query that came in.
func (m mesh) application(pod string) {
	m.t.Helper()
	l, err := m.World.Pod(pod).Location.Listen("0.0.0.0:8080")
	if err != nil {
		m.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's
		_ = json.NewEncoder(w).Encode(received{r.Header, r.URL.RawQuery})
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	m.t.Cleanup(func() { _ = server.Close(); <-ended })
}

// received is what reached the application.
type received struct {
	Header http.Header
	Query  string
}

// Where the client calls.
const (
	sidecar = "10.10.0.11:8080"
	gateway = "10.10.0.12:8000"
)

// call sends a request from the client, and returns the status and what reached the application.
func (m mesh) call(to, query string, headers map[string]string) (int, received, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := m.World.Pod("client").Location.DialContext(ctx, "tcp", to)
	if err != nil {
		return 0, received{}, err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return 0, received{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to+"/?"+query, nil)
	if err != nil {
		return 0, received{}, err
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	if err := req.Write(conn); err != nil {
		return 0, received{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return 0, received{}, err
	}
	defer resp.Body.Close()
	var got received
	if resp.StatusCode == http.StatusOK {
		err = json.NewDecoder(resp.Body).Decode(&got)
	}
	return resp.StatusCode, got, err
}

// eventually waits until a token in the usual place has a status.
func (m mesh) eventually(what, to, token string, status int) {
	m.t.Helper()
	suite.Eventually(m.t, fmt.Sprintf("%s: %d", what, status), func() bool {
		got, _, err := m.call(to, "", bearer(token))
		return err == nil && got == status
	})
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// finding waits until the control plane has a finding about an object and a field, and returns its message, or until it
// has none, if has is false.
func (m mesh) finding(object, field string, has bool) (message string) {
	m.t.Helper()
	suite.Eventually(m.t, fmt.Sprintf("a finding about %s %s: %v", object, field, has), func() bool {
		resp, err := m.Pilot.Get(m.t.Context(), "/debug/findings")
		if err != nil {
			m.t.Fatal(err)
		}
		defer resp.Body.Close()
		var list []struct{ Object, Field, Message string }
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
			m.t.Fatal(err)
		}
		message = ""
		for _, f := range list {
			if f.Object == object && f.Field == field {
				message = f.Message
			}
		}
		return (message != "") == has
	})
	return message
}
