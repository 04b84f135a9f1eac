package e2e

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/echo"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/pods"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/suite"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

//go:embed testdata/mesh
var meshFiles embed.FS

const (
	delta = "delta"
	sotw  = "sotw"
)

var modes = []string{delta, sotw}

// startTimeout is for all Envoys together on a busy machine of two cores.
const startTimeout = 3 * time.Minute

// mesh is a control plane, its directory, and the pods of testdata/mesh.
type mesh struct {
	*suite.Mesh
	// unknown is a server that no file mentions.
	unknown *pods.Pod
}

// newMesh starts it with the Envoy that a variable of the environment names.
func newMesh(t *testing.T, mode, envoy string) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	names, err := fs.Glob(meshFiles, "testdata/mesh/*.yaml")
	must.Succeed(t, err)
	files := map[string]string{}
	for _, name := range names {
		content, err := meshFiles.ReadFile(name)
		must.Succeed(t, err)
		files[filepath.Base(name)] = string(content)
	}
	began := time.Now()
	m := &mesh{suite.StartMesh(ctx, t, suite.MeshOptions{Network: network, Files: files, Envoy: envoy, StateOfTheWorld: mode == sotw}), nil}
	m.startUnknown(t)
	t.Logf("control plane and pods ready after %s", time.Since(began).Round(time.Millisecond))
	return m
}

// startUnknown runs servers at an address that no file mentions.
func (m *mesh) startUnknown(t *testing.T) {
	t.Helper()
	var err error
	if m.unknown, err = network.Add(pods.Spec{Name: "unknown", Addr: netip.MustParseAddr("10.10.99.1")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.unknown.Close() })
	server := echo.New(echo.Options{Name: "unknown"})
	for addr, serve := range map[string]func(net.Listener) error{":80": server.ServeHTTP, ":9999": server.ServeTCP} {
		l, err := m.unknown.Listen(addr)
		must.Succeed(t, err)
		t.Cleanup(func() { l.Close() })
		go serve(l)
	}
}

// write puts a file into the directory as an editor does: whole, under its name.
func (m *mesh) write(t *testing.T, name, content string) {
	t.Helper()
	suite.Write(t, filepath.Join(m.Dir, name), content)
}

// edit replaces the first occurrence in a file, and returns the file's former content.
func (m *mesh) edit(t *testing.T, name, old, now string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(m.Dir, name))
	must.Succeed(t, err)
	before, after, ok := strings.Cut(string(content), old)
	if !ok {
		t.Fatalf("%s does not say %s", name, old)
	}
	m.write(t, name, before+now+after)
	return string(content)
}

func (m *mesh) remove(t *testing.T, name string) {
	t.Helper()
	must.Succeed(t, os.Remove(filepath.Join(m.Dir, name)))
}

// healthy fails the test unless every Envoy has taken what it was sent: it waits for what is on its way, but for no
// rejection to go away.
func (m *mesh) healthy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := m.World.Ready(ctx); err != nil {
		t.Error(err)
	}
}

// podYAML is a file with one more server of the echo service.
func podYAML(name, addr, version string, ready bool) string {
	status := "False"
	if ready {
		status = "True"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: mesh
  labels: {app: echo, version: %s}
spec:
  serviceAccountName: echo
  containers:
  - name: app
    image: echo
    args: ["-http=8080", "-http=8081", "-http=8082", "-http=7000", "-tcp=9000", "-tcp=7100", "-tcp=9100"]
status:
  phase: Running
  podIP: %s
  podIPs:
  - ip: %s
  conditions:
  - type: Ready
    status: "%s"
`, name, version, addr, addr, status)
}
