package traffic

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
	"github.com/istiod-lite/istiod-lite/pilot/ingest"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
)

var network *pods.Network

func TestMain(m *testing.M) {
	suite.Main(m, suite.Options{Prepare: suite.Programs, Network: func(n *pods.Network) { network = n }, AtOnce: 3})
}

// mesh is a running mesh and the test that started it.
type mesh struct {
	*suite.Mesh
	t *testing.T
}

// start runs a mesh until the test ends. It returns when all proxies are ready. yaml is the content of a file of the
// directory, beside the files in the options.
func start(t *testing.T, yaml string, o suite.MeshOptions) mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	files := map[string]string{"mesh.yaml": yaml}
	for name, text := range o.Files {
		files[name] = text
	}
	o.Network, o.Files = network, files
	return mesh{suite.StartMesh(ctx, t, o), t}
}

// inspection reads the directory as it is now, as commands do.
func (m mesh) inspection() *inspect.Inspection {
	m.t.Helper()
	i, err := inspect.Read(m.t.Context(), ingest.Options{
		Logger: slog.New(slog.DiscardHandler), ConfigDir: m.Dir, MeshConfig: m.Config, Namespace: "istio-system", Domain: "cluster.local",
		ClusterID: "Kubernetes", Limits: limits.Default(), NoWatch: true,
	}, catalog.Features())
	must.Succeed(m.t, err)
	return i
}

// write replaces a file of the directory.
func (m mesh) write(name, text string) {
	m.t.Helper()
	suite.Write(m.t, filepath.Join(m.Dir, name), text)
}

// serve serves on a port of a pod until the test ends. The host is an address of the pod, or "0.0.0.0".
func (m mesh) serve(pod, host string, port int, serve func(net.Listener) error, stop func()) {
	m.t.Helper()
	suite.ServeAt(m.t, m.Pod(pod), host, port, serve, stop)
}

// bothProtocols are HTTP/1.1 and HTTP/2 without TLS.
func bothProtocols() *http.Protocols {
	both := &http.Protocols{}
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	return both
}

// handle serves HTTP/1.1 and HTTP/2 on a port of a pod until the test ends.
func (m mesh) handle(pod string, port int, h http.HandlerFunc) {
	m.t.Helper()
	s := &http.Server{Protocols: bothProtocols(), Handler: h} //nolint:gosec // Only the test's own clients reach it.
	m.serve(pod, "0.0.0.0", port, s.Serve, func() { _ = s.Close() })
}

// accept serves TCP on a port of a pod until the test ends. Each connection is closed when answer returns.
func (m mesh) accept(pod, host string, port int, answer func(net.Conn)) {
	m.t.Helper()
	m.serve(pod, host, port, func(l net.Listener) error {
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			go func() { defer c.Close(); answer(c) }()
		}
	}, func() {})
}

// dial connects a pod to an address. The connection has a deadline in a minute.
func (m mesh) dial(pod, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	conn, err := m.Pod(pod).Location.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(time.Minute))
}

// line sends "hello" from a pod over TCP, and returns the line that comes back, without its end.
func (m mesh) line(pod, address string) (string, error) {
	conn, err := m.dial(pod, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return "", err
	}
	text, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(text), err
}

// request is a request of a pod by HTTP/1.1.
type request struct {
	from    string // The pod.
	address string // The address and port that the pod connects to.
	before  string // The bytes in front of the request.
	method  string // GET if empty.
	path    string // The path, which is sent as it is; "/" if empty.
	host    string // The header Host; the address if empty.
	headers map[string]string
	body    string
}

// response is a response to a request. Its zero value is none.
type response struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request on a connection of its own.
func (m mesh) do(r request) (response, error) {
	conn, err := m.dial(r.from, r.address)
	if err != nil {
		return response{}, err
	}
	defer conn.Close()
	return r.exchange(conn)
}

// exchange sends the request on a connection, and reads the response.
func (r request) exchange(conn net.Conn) (response, error) {
	text := fmt.Sprintf("%s%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", r.before, or(r.method, "GET"), or(r.path, "/"),
		or(r.host, r.address))
	for k, v := range r.headers {
		text += k + ": " + v + "\r\n"
	}
	if r.body != "" {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(r.body))
	}
	if _, err := io.WriteString(conn, text+"\r\n"+r.body); err != nil {
		return response{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: or(r.method, "GET")})
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, body}, err
}

// or returns the first text that is not empty.
func or(texts ...string) string {
	for _, s := range texts {
		if s != "" {
			return s
		}
	}
	return ""
}

// page decodes a debug page of the control plane.
func page[T any](m mesh, path string) (v T) {
	m.t.Helper()
	resp, err := m.Pilot.Get(m.t.Context(), path)
	must.Succeed(m.t, err)
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		m.t.Fatalf("%s: %v", path, err)
	}
	return v
}

// finding is a finding of the control plane.
type finding struct {
	Object, Field, Code, Message, File string
	Line                               int
}

func (m mesh) findings() []finding {
	m.t.Helper()
	return page[[]finding](m, "/debug/findings")
}

// updates returns how many responses the Envoy of a pod was sent.
func (m mesh) updates(pod string) (n int) {
	m.t.Helper()
	stats, err := m.Pod(pod).Proxy.Stats(m.t.Context(), "update_attempt|update_success")
	must.Succeed(m.t, err)
	for _, v := range stats {
		n += v
	}
	return n
}

// healthy checks that no proxy has rejected anything.
func (m mesh) healthy() {
	m.t.Helper()
	if err := m.Healthy(m.t.Context()); err != nil {
		m.t.Error(err)
	}
}
