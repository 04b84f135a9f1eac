package extension

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
)

const startTimeout = 90 * time.Second

// The addresses of services.
const (
	echoService  = "10.96.0.10:80"
	plainService = "10.96.0.11:80"
)

// meshYAML has two servers and a client in another namespace, all with sidecars.
var meshYAML = suite.NamespacesYAML("istio-system", "a", "b") + suite.ServiceYAML("echo", "a", "10.96.0.10") +
	suite.ServiceYAML("plain", "a", "10.96.0.11") + suite.PodYAML("echo", "a", "10.10.0.11", `"-http=8080"`, suite.Sidecar) +
	suite.PodYAML("plain", "a", "10.10.0.12", `"-http=8080"`, suite.Sidecar) +
	suite.PodYAML("client", "b", "10.10.0.13", "", suite.Sidecar)

// mesh is the mesh of the tests, while it runs.
type mesh struct{ *suite.Mesh }

func startMesh(t *testing.T) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	return &mesh{suite.StartMesh(ctx, t, suite.MeshOptions{Network: network, CA: true, Files: map[string]string{"mesh.yaml": meshYAML}})}
}

// answer is what a call came to. A call without an answer has no status.
type answer struct {
	status  int
	headers http.Header
}

// get calls a service from the client.
func (m *mesh) get(t *testing.T, address string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := m.Pod("client").Location.DialContext(ctx, "tcp", address)
	if err != nil {
		return answer{}
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", address); err != nil {
		return answer{}
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{}
	}
	defer a.Body.Close()
	return answer{a.StatusCode, a.Header}
}

// page returns a page of the control plane, decoded.
func page[T any](t *testing.T, m *mesh, path string) (v T) {
	t.Helper()
	resp, err := m.Pilot.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", path, err, b)
	}
	return v
}
